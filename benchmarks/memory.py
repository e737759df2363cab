"""Measure the memory of a training step over algebras beside the real network: ``python -m benchmarks.memory``.

Each network is trained for a few steps with AdamW in a process of its own: once as it is, for the peak of the resident memory over
what the process took before the network was built, and once under torch's memory tracker, which sees every tensor that is made.
Counted apart: parameters, gradients and the optimizer's state; what is kept for the backward pass; the peak of all tensors.
Writes results/memory.json; the table is on docs/speed.md (``python -m benchmarks.kernels --page``).
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "memory.json"
ALGEBRAS = ("real", "quaternion", "octonion", "complex", "phm-4")
WORKS = {
    "linear": "4 x (Linear 2048 to 2048, GELU), 1,024 rows",
    "vit": "ViT, dim 768, depth 4, 16 images of 64 x 64 in patches of 8",
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
    if work == "linear":
        layers = [layer for _ in range(4) for layer in (Linear(zoo.algebra(algebra), 2048, 2048), nn.GELU())]
        net: nn.Module = nn.Sequential(*layers)
        x = torch.randn(1024, 2048)
        loss = lambda: net(x).square().mean()  # noqa: E731
    else:
        net = zoo.backbone("vit(dim=768, depth=4, heads=8, patch=8)", algebra, in_channels=3, image_size=64, num_classes=10)
        x, target = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
        loss = lambda: F.cross_entropy(net(x), target)  # noqa: E731
    return net, torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=False), loss


def resident(key: str) -> int:
    """Read a number of bytes from this process's status: VmRSS, or VmHWM, its peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def measure_resident(work: str, algebra: str) -> dict[str, Any]:
    """Return the peak of the resident memory over what the process took with everything imported, by steps as they are."""
    import torch

    import zoo

    zoo.algebra(algebra)
    torch.nn.functional.linear(torch.randn(64, 64), torch.randn(64, 64))
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    net, optimizer, loss = build(work, algebra)
    for _ in range(STEPS):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
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
    choices = [kernel for m in weights for kernel in m.kernel_choice._choices.values()]
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
        "Memory of a training step with AdamW, float32, beside the same network over the reals (`python -m benchmarks.memory`,",
        f"{found['machine']['date']}, commit {machine.short(found['commit'])}): parameters, gradients and Adam's state",
        "together, of the matrices over the algebra and of the whole network; activations, which is what is kept for the",
        "backward pass beside the parameters; the peak of all tensors that torch's memory tracker sees in a step; and the peak",
        "of the resident memory of a process of its own, less what it took before the network was built. Aimed at: 1/n + 1 %",
        "for the state, 1.05 for the activations; **bold** where that was reached.",
        "",
        "| network | algebra | kernels | state of the matrices | state of the network | activations | peak | resident peak |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for work, rows in found["works"].items():
        real = rows["real"]
        for algebra, row in rows.items():
            share = {key: row[key] / real[key] for key in ("matrices", "network", "kept", "peak", "resident_peak")}
            aim = 1.01 * {"real": 1, "quaternion": 1 / 4, "octonion": 1 / 8, "complex": 1 / 2, "phm-4": 1 / 4}[algebra]
            cells = [cell(row[key], share[key], aim) for key in ("matrices", "network")]
            cells += [cell(row["kept"], share["kept"], 1.05), cell(row["peak"], share["peak"])]
            cells.append(cell(row["resident_peak"], share["resident_peak"]))
            kernels = ", ".join(row["kernels"]) or "real matrix"
            lines.append(f"| {WORKS[work]} | {algebra} | {kernels} | {' | '.join(cells)} |")
    return lines


def cell(count: int, share: float, aim: float = 0.0) -> str:
    """Write bytes as MiB and their share of the real network's."""
    text = f"{share:.3f}"
    return f"{count / 2**20:,.1f} MiB, {f'**{text}**' if share <= aim else text}"


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
        for algebra in ALGEBRAS:
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
