"""Compare the memory of a training step over algebras and over the reals: ``python -m benchmarks.speed.memory``.

Each network is trained for a few steps with AdamW in two separate processes: the first measures the increase of the peak
resident memory, the second all tensors, with torch's memory tracker. Parameters, gradients and optimizer state, tensors saved
for the backward pass, and the peak of all tensors are counted separately. Writes results/memory.json; the table is on
docs/speed.md (``python -m benchmarks.speed.speed_page``).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine

RESULTS = machine.RESULTS / "memory.json"
SHARES = {"real": 1, "quaternion": 1 / 4, "octonion": 1 / 8, "complex": 1 / 2, "phm-4": 1 / 4}
WORKS = {
    "linear": "4 x (Linear 2048 to 2048, GELU), 1,024 rows",
    "vit(dim=768, depth=4, heads=8, patch=8)": "ViT, dim 768, depth 4, 16 images of 64 x 64 in patches of 8",
    "vit(dim=192, depth=4, heads=4, patch=8)": "ViT, dim 192, otherwise the same",
}
STEPS = 3


def build(work: str, algebra: str) -> tuple[Any, Any, Any]:
    """Return a network, its optimizer, and a function that computes the loss of a batch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    import zoo
    from zoo.nn import Linear

    torch.manual_seed(0)
    if not work.startswith("vit"):
        size = 2048 if work == "linear" else 64  # the small one is for warming up
        layers = [layer for _ in range(4) for layer in (Linear(size, size, algebra=zoo.algebra(algebra)), nn.GELU())]
        net: nn.Module = nn.Sequential(*layers)
        x = torch.randn(1024, size)
        loss = lambda: net(x).square().mean()  # noqa: E731
    else:
        net = zoo.backbone(work, algebra, in_channels=3, image_size=64, num_classes=10)
        x, target = torch.randn(16, 3, 64, 64), torch.randint(10, (16,))
        loss = lambda: F.cross_entropy(net(x), target)  # noqa: E731
    return net, torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=False), loss


def train(net: Any, optimizer: Any, loss: Any, steps: int) -> None:
    """Take a number of optimizer steps."""
    for _ in range(steps):
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()


def resident(key: str) -> int:
    """Return the resident memory of this process in bytes (VmRSS) or its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(key))


def measure_resident(work: str, algebra: str) -> dict[str, Any]:
    """Return the increase of the peak resident memory in bytes, after warming up with a small network."""
    train(*build("warm", algebra), 2)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    train(*build(work, algebra), STEPS)
    return {"resident_peak": resident("VmHWM") - before}


def measure_tensors(work: str, algebra: str) -> dict[str, Any]:
    """Return bytes of parameters, gradients and Adam's state (matrices over the algebra, network), saved tensors, and peak."""
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    from zoo.nn.weight import Weight

    net, optimizer, loss = build(work, algebra)
    saved: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in net.parameters()}

    def record(t: Any) -> Any:
        if t.untyped_storage().data_ptr() not in parameters:
            saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(record, lambda t: t):
        value = loss()
    value.backward()
    optimizer.step()

    def state(parameters: Any) -> int:
        tensors = (t for p in parameters for t in (p, p.grad, optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]))
        return sum(t.numel() * t.element_size() for t in tensors)

    weights = [m for m in net.modules() if isinstance(m, Weight)]
    matrices = state(m.components for m in weights)
    network = state(net.parameters())
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
        "network": network,
        "kept": sum(saved.values()),
        "peak": peak["Total"],
        "kernels": {kernel: choices.count(kernel) for kernel in sorted(set(choices))},
    }


def table(results: dict[str, Any]) -> list[str]:
    """Format the rows of the table on docs/speed.md."""
    lines = []
    for work, rows in results["works"].items():
        for algebra, row in rows.items():
            ratios = {key: count / rows["real"][key] for key, count in row.items() if key != "kernels"}
            goals = {"matrices": 1.01 * SHARES[algebra], "kept": 1.05}
            keys = ("matrices", "network", "kept", "peak", "resident_peak")
            cells = [cell(row[key], ratios[key], goals.get(key, 0.0), algebra == "real") for key in keys]
            kernels = ", ".join(f"{kernel} {count}" for kernel, count in row["kernels"].items())
            lines.append(f"| {WORKS[work]} | {algebra} | {kernels} | {' | '.join(cells)} |")
    return lines


def cell(count: int, ratio: float, goal: float, is_real: bool) -> str:
    """Format bytes as MiB, with the ratio to the real network."""
    text = f"**{ratio:.3f}**" if ratio <= goal else f"{ratio:.3f}"
    return f"{count / 2**20:,.1f}" + ("" if is_real else f" ({text})")


def main() -> None:
    """Measure all networks over all algebras in separate processes, or with ``--one`` a single one in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("HOW", "WORK", "ALGEBRA"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        how, *which = options.one
        print(json.dumps({"resident": measure_resident, "tensors": measure_tensors}[how](*which)))
        return
    works: dict[str, dict[str, Any]] = {}
    for work in WORKS:
        for algebra in SHARES:
            row: dict[str, Any] = {}
            for how in ("resident", "tensors"):
                command = [sys.executable, "-m", "benchmarks.speed.memory", "--one", how, work, algebra]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr[-2000:])
                row |= json.loads(done.stdout.splitlines()[-1])
            works.setdefault(work, {})[algebra] = row
            print(work, algebra, row, flush=True)
    machine.write(RESULTS, {"machine": machine.info(), "commit": machine.commit(), "works": works})


if __name__ == "__main__":
    main()
