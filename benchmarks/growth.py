"""Measure how the time of a training step grows: ``python -m benchmarks.growth [--only features|rows|tokens|depth] [--draw]``.

With the features and rows of a linear layer, and with the tokens and depth of a transformer; networks over algebras and the
real one in turns in one process. Writes results/growth.json and the pictures of docs/speed.md; ``--draw`` draws them alone.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import zoo
from benchmarks import machine
from benchmarks.papers import commit
from benchmarks.papers_page import IMAGES
from zoo.layers import Linear
from zoo.training.bench import Call, side_by_side

RESULTS = Path(__file__).parent / "results" / "growth.json"
ALGEBRAS = ("real", "complex", "quaternion", "octonion", "phm-4")
SIZES = {
    "features": (256, 512, 1024, 2048, 4096),
    "rows": (64, 256, 1024, 4096),
    "tokens": (128, 256, 512, 1024, 2048, 4096),
    "depth": (1, 2, 4, 8),
}
NETWORKS = {
    "features": "a linear layer, 1,024 rows",
    "rows": "a linear layer, 1,024 features",
    "tokens": "a GPT of one block, dim 256, one text",
    "depth": "a GPT of dim 384, one text of 256 tokens",
}


def step(kind: str, algebra: str, size: int) -> Call:
    """Return a call that goes forward and backward through a network of a size."""
    torch.manual_seed(0)
    if kind in ("features", "rows"):
        rows, features = (size, 1024) if kind == "rows" else (1024, size)
        net: nn.Module = Linear(zoo.algebra(algebra), features, features)
        x, g = torch.randn(rows, features, requires_grad=True), torch.randn(rows, features)
    else:
        spec, length = (
            ("gpt(dim=256, depth=1, heads=4)", size) if kind == "tokens" else (f"gpt(dim=384, depth={size}, heads=6)", 256)
        )
        net = zoo.backbone(spec, algebra, vocab_size=64, max_length=length)
        x = torch.randint(1, 64, (1, length))

    def call() -> None:
        if kind in ("features", "rows"):
            net(x).backward(g)
        else:
            F.cross_entropy(net(x).flatten(0, -2), x.flatten()).backward()
        net.zero_grad(set_to_none=True)
        x.grad = None

    return call


def measure(kind: str, rounds: int = 7) -> dict[str, Any]:
    """Time training steps at growing sizes: medians in milliseconds, and the slope of the last three on logarithmic axes."""
    points: dict[str, list[float]] = {algebra: [] for algebra in ALGEBRAS}
    for size in SIZES[kind]:
        for algebra, found in side_by_side({a: step(kind, a, size) for a in ALGEBRAS}, rounds, warmup=2).items():
            points[algebra].append(found["ms"])
        print(kind, size, {algebra: ms[-1] for algebra, ms in points.items()}, flush=True)
    exponents = {algebra: round(exponent(SIZES[kind], ms), 2) for algebra, ms in points.items()}
    measured = {"machine": machine.info(), "commit": commit()}
    return {"sizes": SIZES[kind], "ms": points, "exponents": exponents} | measured


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Fit the slope of a line through the last three points on logarithmic axes.

    >>> round(exponent((1, 2, 4, 8), [9.0, 2.0, 8.0, 32.0]), 6)
    2.0
    """
    xs, ys = [math.log(s) for s in sizes[-3:]], [math.log(v) for v in values[-3:]]
    mean_x, mean_y = sum(xs) / 3, sum(ys) / 3
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum((x - mean_x) ** 2 for x in xs)


def plot(kind: str, found: dict[str, Any]) -> None:
    """Draw how time grows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for (algebra, values), marker in zip(found["ms"].items(), "oDs^v", strict=True):
        axes.loglog(found["sizes"], values, f"{marker}-", label=f"{algebra}, exponent {found['exponents'][algebra]:.2f}")
    axes.set(xlabel=kind, ylabel="milliseconds, forward and backward", title=NETWORKS[kind])
    axes.minorticks_off()
    axes.set_xticks(found["sizes"], [f"{size:,}" for size in found["sizes"]])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(True, alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(IMAGES / f"speed_{kind}.png", dpi=120)


def section(found: dict[str, Any]) -> list[str]:
    """Write the section of docs/speed.md."""
    where = found["features"]
    lines = [
        "## How time grows",
        "",
        f"Forward and backward in milliseconds, {where['machine']['threads']} threads, medians of steps in turns",
        f"(`python -m benchmarks.growth`, {where['machine']['date']}, commit {machine.short(where['commit'])}). The exponent",
        "is the slope over the last three sizes on logarithmic axes. Products of a linear layer grow with the square of its",
        "features and in proportion to its rows. With tokens the exponent lies between 1 and 2: attention scores grow with",
        "their square, everything else in proportion.",
    ]
    for kind, points in found.items():
        sizes = points["sizes"]
        lines += ["", f"| {NETWORKS[kind]}: {kind} | {' | '.join(f'{size:,}' for size in sizes)} | exponent |"]
        lines.append(f"|---|{'---:|' * len(sizes)}---:|")
        for algebra, values in points["ms"].items():
            lines.append(f"| {algebra} | {' | '.join(f'{v:,.1f}' for v in values)} | {points['exponents'][algebra]:.2f} |")
        lines += ["", f"![time against {kind}](images/speed_{kind}.png)"]
    return lines


def main() -> None:
    """Measure all kinds of growth, or one, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(SIZES), help="measure only this")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for kind in () if given.draw else [given.only] if given.only else SIZES:
        found[kind] = measure(kind)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for kind, points in found.items():
        plot(kind, points)


if __name__ == "__main__":
    main()
