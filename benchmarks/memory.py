"""Measure the memory of a training step over algebras beside the real network: ``python -m benchmarks.memory``.

Each network is trained for a few steps with AdamW in a process of its own: once as it is, for the peak of the resident memory
over what the process took before the network was built, and once under torch's memory tracker, which sees every tensor that is
made. Counted apart: parameters, gradients and the optimizer's state; what is kept for the backward pass; the peak of all
tensors. Writes results/memory.json; the table is on docs/speed.md (``python -m benchmarks.speed_page``).
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "memory.json"
SHARES = {"real": 1, "quaternion": 1 / 4, "octonion": 1 / 8, "complex": 1 / 2, "phm-4": 1 / 4}
WORKS = {
    "linear": "4 x (Linear 2048 to 2048, GELU), 1,024 rows",
    "vit(dim=768, depth=4, heads=8, patch=8)": "ViT, dim 768, depth 4, 16 images of 64 x 64 in patches of 8",
    "vit(dim=192, depth=4, heads=4, patch=8)": "ViT, dim 192, the same otherwise",
}
STEPS = 3


def build(work: str, algebra: str) -> tuple[Any, Any, Any]:
    """Return a network, its optimizer, and a call that computes the loss of a batch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    import zoo
    from zoo.layers import Linear

    torch.manual_seed(0)
    if not work.startswith("vit"):
        size = 2048 if work == "linear" else 64  # the small one loads what a first step loads
        layers = [layer for _ in range(4) for layer in (Linear(zoo.algebra(algebra), size, size), nn.GELU())]
        net: nn.Module = nn.Sequential(*layers)
        x = torch.randn(1024, size)
        loss = lambda: net(x).square().mean()  # noqa: E731
    else:
        net = zoo.backbone(work, algebra, in_channels=3, image_size=64, num_classes=10)
        x, target = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
        loss = lambda: F.cross_entropy(net(x), target)  # noqa: E731
    return net, torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=False), loss


def train(net: Any, optimizer: Any, loss: Any, steps: int) -> None:
    """Take so many steps."""
    for _ in range(steps):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()


def resident(key: str) -> int:
    """Read a number of bytes from this process's status: VmRSS, or VmHWM, its peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def measure_resident(work: str, algebra: str) -> dict[str, Any]:
    """Return the peak of the resident memory over what the process took with everything imported, by steps as they are."""
    train(*build("warm", algebra), 2)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    train(*build(work, algebra), STEPS)
    return {"resident_peak": resident("VmHWM") - before}


def measure_tensors(work: str, algebra: str) -> dict[str, Any]:
    """Return bytes: parameters, gradients and Adam's state, of all and of the matrices over the algebra; kept; peak."""
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    from zoo.layers.weight import Weight

    net, optimizer, loss = build(work, algebra)
    kept: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in net.parameters()}

    def note(t: Any) -> Any:
        if t.untyped_storage().data_ptr() not in own:
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        value = loss()
    value.backward()
    optimizer.step()

    def state(parameters: Any) -> int:
        found = 0
        for p in parameters:
            tensors = (p, p.grad, *(optimizer.state[p][name] for name in ("exp_avg", "exp_avg_sq")))
            found += sum(t.numel() * t.element_size() for t in tensors)
        return found

    weights = [m for m in net.modules() if isinstance(m, Weight)]
    matrices = state(m.components for m in weights)
    whole = state(net.parameters())
    choices = [kernel.name for m in weights for kernel in m.plans.values()]
    optimizer.zero_grad()
    del value
    tracker = MemTracker()
    tracker.track_external(net, optimizer)
    with tracker:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
    peak = next(iter(tracker.get_tracker_snapshot("peak").values()))
    return {
        "matrices": matrices,
        "network": whole,
        "kept": sum(kept.values()),
        "peak": peak["Total"],
        "kernels": {kernel: choices.count(kernel) for kernel in sorted(set(choices))},
    }


def table(found: dict[str, Any]) -> list[str]:
    """Write the measured memory beside the real network's, for docs/speed.md."""
    from benchmarks import machine

    lines = [
        "## Memory of a training step",
        "",
        "With AdamW in float32, in MiB, and in brackets divided by that of the same network over the reals",
        f"(`python -m benchmarks.memory`, {found['machine']['date']}, commit {machine.short(found['commit'])}). *Matrices*",
        "and *network*: parameters, gradients and Adam's state together, of the matrices over the algebra and of everything.",
        "*Activations*: what is kept for the backward pass beside the parameters. *Peak*: of all tensors that torch's memory",
        "tracker sees in a step. *Resident*: the peak of the memory of a process of its own, less what it took after a step of",
        "a tiny network. Aimed at: 1/n + 1 % for the matrices, 1.05 for the activations; **bold** where that was reached.",
        "",
        "| network | algebra | kernels | matrices | network | activations | peak | resident |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for work, rows in found["works"].items():
        for algebra, row in rows.items():
            share = {key: count / rows["real"][key] for key, count in row.items() if key != "kernels"}
            aims = {"matrices": 1.01 * SHARES[algebra], "kept": 1.05}
            keys = ("matrices", "network", "kept", "peak", "resident_peak")
            cells = [cell(row[key], share[key], aims.get(key, 0.0), algebra == "real") for key in keys]
            kernels = ", ".join(f"{kernel} {count}" for kernel, count in row["kernels"].items())
            lines.append(f"| {WORKS[work]} | {algebra} | {kernels} | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "While one matrix is worked on, its combinations (R/n times the components, and as much for the gradient in every",
        "thread) or, with the block kernel, the real matrix and its parts exist beside the rest; the peak includes them. The",
        "block kernel uses that memory again instead of giving it back: up to 64 MiB and 16 MiB, once for a whole network, not",
        "once a layer.",
        "The block kernel keeps a matrix of at most 1 MiB for the backward pass, which small networks see among their",
        "activations: to assemble it again took 0.2 ms of a step of 4.3 ms (1,024 rows, 192 to 768 features).",
    ]


def cell(count: int, share: float, aim: float, is_real: bool) -> str:
    """Write bytes as MiB and their share of the real network's."""
    text = f"**{share:.3f}**" if share <= aim else f"{share:.3f}"
    return f"{count / 2**20:,.1f}" + ("" if is_real else f" ({text})")


def main() -> None:
    """Measure every network over every algebra in processes of their own, or, with ``--one``, one in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("HOW", "WORK", "ALGEBRA"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        how, *which = given.one
        print(json.dumps({"resident": measure_resident, "tensors": measure_tensors}[how](*which)))
        return
    from benchmarks import machine
    from benchmarks.papers import commit

    works: dict[str, dict[str, Any]] = {}
    for work in WORKS:
        for algebra in SHARES:
            row: dict[str, Any] = {}
            for how in ("resident", "tensors"):
                command = [sys.executable, "-m", "benchmarks.memory", "--one", how, work, algebra]
                done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr[-2000:])
                row |= json.loads(done.stdout.splitlines()[-1])
            works.setdefault(work, {})[algebra] = row
            print(work, algebra, row, flush=True)
    found = {"machine": machine.info(), "commit": commit(), "works": works}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
