"""Measure how a training step scales: ``python -m benchmarks.speed.growth [--only SERIES] [--memory | --draw]``.

Measures time and memory against the features and rows of a linear layer, the tokens and depth of a transformer, and the
dimension n of the algebra. All networks run alternately in one process. Writes results/growth.json and the pictures of
docs/speed.md; ``--memory`` measures only memory, which does not depend on the load, and ``--draw`` only draws the pictures.
"""

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F

import zoo
from benchmarks import machine
from zoo.nn import Linear
from zoo.training.bench import Call, side_by_side

RESULTS = machine.RESULTS / "growth.json"
SIZES = {
    "features": (256, 512, 1024, 2048, 4096),
    "rows": (64, 256, 1024, 4096),
    "tokens": (128, 256, 512, 1024, 2048, 4096),
    "depth": (1, 2, 4, 8),
    "n": (1, 2, 4, 8, 16),
}
NETWORKS = {
    "features": "Linear, 1,024 rows",
    "rows": "Linear, 1,024 features",
    "tokens": "GPT with one block, dim 256, batch size 1",
    "depth": "GPT with dim 384, batch size 1, 256 tokens",
    "n": "Linear, 1,024 rows and features",
}
ALGEBRAS = ("real", "complex", "quaternion", "octonion", "phm-4")
CAYLEY_DICKSON = {1: "real", 2: "complex", 4: "quaternion", 8: "octonion", 16: "sedenion"}
DIMENSIONS: dict[str, Callable[[int], str]] = {
    "real": lambda n: "real",
    "Cayley-Dickson": CAYLEY_DICKSON.__getitem__,
    "phm-n": lambda n: f"phm-{n}",
}
QUANTITIES = {"ms": "milliseconds, forward and backward", "mib": "MiB, peak of all tensors"}


def series(kind: str) -> dict[str, Callable[[int], str]]:
    """Return the lines of a picture, the reals first: a function from size to algebra for each."""
    return DIMENSIONS if kind == "n" else {name: lambda _, name=name: name for name in ALGEBRAS}  # type: ignore[misc]


def network(kind: str, algebra: str, size: int) -> tuple[nn.Module, Call]:
    """Return a network of a given size, and a call that runs its forward and backward pass."""
    torch.manual_seed(0)
    if kind in ("features", "rows", "n"):
        rows, features = {"rows": (size, 1024), "features": (1024, size), "n": (1024, 1024)}[kind]
        net: nn.Module = Linear(features, features, algebra=zoo.algebra(algebra))
        x, g = torch.randn(rows, features, requires_grad=True), torch.randn(rows, features)
    else:
        spec, length = (
            ("gpt(dim=256, depth=1, heads=4)", size) if kind == "tokens" else (f"gpt(dim=384, depth={size}, heads=6)", 256)
        )
        net = zoo.backbone(spec, algebra, vocab_size=64, max_length=length)
        x = torch.randint(1, 64, (1, length))

    def call() -> None:
        if kind in ("tokens", "depth"):
            F.cross_entropy(net(x).flatten(0, -2), x.flatten()).backward()
        else:
            net(x).backward(g)
        net.zero_grad(set_to_none=True)
        x.grad = None

    return net, call


def peak(net: nn.Module, call: Call) -> float:
    """Return the peak memory of all tensors during a call, in MiB."""
    call()
    tracker = MemTracker()
    tracker.track_external(net)
    with tracker:
        call()
    return round(float(next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]) / 2**20, 2)


def measure(kind: str, quantity: str, rounds: int = 7) -> dict[str, Any]:
    """Measure training steps for all sizes, and the slope of the last three on logarithmic axes."""
    points: dict[str, list[float]] = {name: [] for name in series(kind)}
    for size in SIZES[kind]:
        networks = {name: network(kind, algebra(size), size) for name, algebra in series(kind).items()}
        if quantity == "mib":
            values = {name: peak(*pair) for name, pair in networks.items()}
        else:
            times = side_by_side({name: call for name, (_, call) in networks.items()}, rounds, warmup=2)
            values = {name: row["ms"] for name, row in times.items()}
        for name, value in values.items():
            points[name].append(value)
        print(kind, size, quantity, values, flush=True)
    slopes = {name: round(exponent(SIZES[kind], values), 2) for name, values in points.items()}
    about = {"network": NETWORKS[kind], "machine": machine.info(), "commit": machine.commit()}
    return {"points": points, "exponents": slopes} | about


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Fit the slope of the last three points on logarithmic axes.

    >>> round(exponent((1, 2, 4, 8), [9.0, 2.0, 8.0, 32.0]), 6)
    2.0
    """
    xs, ys = [math.log(s) for s in sizes[-3:]], [math.log(v) for v in values[-3:]]
    mean_x, mean_y = sum(xs) / 3, sum(ys) / 3
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)


def plot(kind: str, measured: dict[str, Any]) -> None:
    """Plot time and memory against size."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    for axes, (quantity, rows) in zip(figure.subplots(1, 2), sorted(measured.items(), reverse=True), strict=False):
        for (name, values), marker in zip(rows["points"].items(), "oDs^v", strict=False):
            axes.loglog(SIZES[kind], values, f"{marker}-", label=f"{name}, exponent {rows['exponents'][name]:.2f}")
        axes.set(xlabel=kind, ylabel=QUANTITIES[quantity])
        axes.minorticks_off()
        axes.set_xticks(SIZES[kind], [f"{size:,}" for size in SIZES[kind]])
        if kind == "n":  # all values are within a decade
            axes.set(yscale="linear", ylim=(0, None))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(True, alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle(measured["ms"]["network"])
    figure.savefig(machine.IMAGES / f"speed_{kind}.png", dpi=110)


def section(results: dict[str, Any]) -> list[str]:
    """Format the tables and pictures on docs/speed.md."""
    lines: list[str] = []
    for kind, measured in results.items():
        sizes = SIZES[kind]
        lines += ["", f"| {measured['ms']['network']}: {kind} | | {' | '.join(f'{size:,}' for size in sizes)} | exponent |"]
        lines.append(f"|---|---|{'---:|' * len(sizes)}---:|")
        for quantity, rows in sorted(measured.items(), reverse=True):
            unit = {"ms": "ms", "mib": "MiB"}[quantity]
            for name, values in rows["points"].items():
                cells = " | ".join(f"{value:,.1f}" for value in values)
                lines.append(f"| {name} | {unit} | {cells} | {rows['exponents'][name]:.2f} |")
        dates = {
            f"{QUANTITIES[q].partition(',')[0]}: {row['machine']['date']}, commit {machine.short(row['commit'])}"
            for q, row in measured.items()
        }
        lines += ["", f"![time and memory against {kind}](images/speed_{kind}.png)", "", "; ".join(sorted(dates)) + "."]
    return lines[1:]


def main() -> None:
    """Measure all series or one of them, and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(SIZES), help="measure only this series")
    parser.add_argument("--memory", action="store_true", help="measure only memory")
    parser.add_argument("--draw", action="store_true", help="only draw the pictures")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for kind in () if options.draw else [options.only] if options.only else SIZES:
        for quantity in ("mib",) if options.memory else tuple(QUANTITIES):
            results.setdefault(kind, {})[quantity] = measure(kind, quantity)
            ordered = {k: {q: results[k][q] for q in QUANTITIES if q in results[k]} for k in SIZES if k in results}
            machine.write(RESULTS, ordered)
    for kind, measured in results.items():
        plot(kind, measured)


if __name__ == "__main__":
    main()
