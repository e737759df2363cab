"""Measure convolutions and the products of an LSTM by their kernels: ``python -m benchmarks.convolutions``.

Forward and backward, and evaluation, in turns in one process, each divided by torch's layer over the reals: with the real
kernel (``block``), by factors (``factored``), and as the plan chooses (``auto``). Writes results/convolutions.json, and its
table into docs/kernels.md (``--page`` alone).
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import zoo
from benchmarks import machine
from benchmarks.papers import commit
from zoo.layers import Conv2d, Linear, set_kernel
from zoo.training.bench import Call, side_by_side

RESULTS = Path(__file__).parent / "results" / "convolutions.json"
PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
BEGIN, END = "<!-- table: benchmarks/results/convolutions.json -->", "<!-- end of table -->"
SHAPES = ((32, 64, 32, 3), (32, 128, 16, 3), (16, 256, 14, 3), (16, 512, 7, 3), (16, 256, 14, 1), (16, 1024, 14, 1))
ALGEBRAS = ("quaternion", "octonion", "complex")
KERNELS = ("block", "factored", "auto")


def step(layer: nn.Module, shape: tuple[int, ...], training: bool) -> Call:
    """Return a call that goes forward and backward through a layer, or evaluates it."""
    layer.train(training)
    x = torch.randn(shape, requires_grad=training)
    g = torch.randn_like(layer(x).detach())

    def call() -> None:
        with torch.set_grad_enabled(training):
            y = layer(x)
        if training:
            y.backward(g)
            x.grad = None
            layer.zero_grad(set_to_none=True)

    return call


def measure(real: nn.Module, ours: dict[str, nn.Module], shape: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Time layers in training and in evaluation."""
    found = {}
    for mode in ("training", "evaluation"):
        calls = {name: step(layer, shape, mode == "training") for name, layer in {"real": real, **ours}.items()}
        found[mode] = side_by_side(calls, rounds)
    return found


def convolution(count: int, channels: int, size: int, area: int, rounds: int) -> dict[str, Any]:
    """Time convolutions of as many channels to as many, by all kernels."""
    ours: dict[str, nn.Module] = {}
    for algebra in ALGEBRAS:
        for kernel in KERNELS:
            layer = Conv2d(zoo.algebra(algebra), channels, channels, area, padding=area // 2)
            set_kernel(layer.modules(), kernel)
            ours[f"{algebra} {kernel}"] = layer
    real = nn.Conv2d(channels, channels, area, padding=area // 2)
    return measure(real, ours, (count, channels, size, size), rounds)


def hidden_products(rounds: int) -> dict[str, Any]:
    """Time the product of one step of the LSTM of docs/speed.md, 64 hidden states of 304 to 4 gates, evaluated."""
    ours: dict[str, nn.Module] = {}
    for algebra in ALGEBRAS:
        for kernel in KERNELS[:2]:
            layer = Linear(zoo.algebra(algebra), 304, 1216, blocks=(1, 4))
            set_kernel(layer.modules(), kernel)
            ours[f"{algebra} {kernel}"] = layer
    return measure(nn.Linear(304, 1216), ours, (64, 304), rounds)


def table(found: dict[str, Any]) -> str:
    """Write the tables of docs/kernels.md."""
    where = found["machine"]
    head = [f"{algebra}, {kernel}" for algebra in ALGEBRAS for kernel in KERNELS]
    lines = [f"| forward and backward; evaluation | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
    for shape in found["shapes"]:
        count, channels, size, area = shape["shape"]
        lines.append(f"| {count} x {channels} x {size} x {size}, {area} x {area} | {cells(shape, KERNELS)} |")
    lines += ["", "The product of one step of an LSTM, 64 rows, 304 to 4 x 304, beside the real one with its matrix at hand:"]
    lines += [f"{'; '.join(products(found['hidden']))} (block: assembled anew)."]
    note = f"{where['date']}, {where['cores']} cores of {where['processor']}, torch {where['torch']}, float32"
    return "\n".join(
        [*lines, "", f"{note}, commit {machine.short(found['commit'])}. Made by `python -m benchmarks.convolutions`."]
    )


def cells(shape: dict[str, Any], kernels: tuple[str, ...]) -> str:
    """Write the ratios of a shape."""
    pairs = [
        (shape["training"][f"{a} {k}"]["ratio"], shape["evaluation"][f"{a} {k}"]["ratio"]) for a in ALGEBRAS for k in kernels
    ]
    return " | ".join(f"{training:.2f}; {evaluation:.2f}" for training, evaluation in pairs)


def products(hidden: dict[str, Any]) -> list[str]:
    """Write the ratios of an LSTM's products, forward and backward."""
    ratios = {algebra: [hidden["training"][f"{algebra} {kernel}"]["ratio"] for kernel in KERNELS[:2]] for algebra in ALGEBRAS}
    return [f"{algebra} block {block:.2f}, factored {factored:.2f}" for algebra, (block, factored) in ratios.items()]


def main() -> None:
    """Measure every shape, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if not given.page:
        shapes = []
        for shape in SHAPES:
            shapes.append({"shape": shape, **convolution(*shape, given.rounds)})
            print(shape, cells(shapes[-1], KERNELS), flush=True)
        found: dict[str, Any] = {"machine": machine.info(), "commit": commit(), "shapes": shapes}
        found["hidden"] = hidden_products(5 * given.rounds)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = table(json.loads(RESULTS.read_text(encoding="utf-8")))
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
