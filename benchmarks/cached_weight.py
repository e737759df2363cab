"""Measure layers over an algebra against torch's: ``python -m benchmarks.cached_weight [--rounds 100]``.

Evaluation of one row, where the real matrix is kept, and a training step, where it is assembled; side by side in one process on
one thread, in turn and in a random order, in CPU time, so that whatever else the machine does meets all of them
alike. A ratio is the median time of a layer over that of torch's layer. Writes results/cached_weight.json.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import machine
from zoo.algebras import algebra
from zoo.layers import LSTM, Linear
from zoo.layers.weight import Weight

RESULTS = Path(__file__).parent / "results" / "cached_weight.json"
SPECS = ("real", "quaternion", "phm-4")
Call = Callable[[], Any]


def side_by_side(build: Mapping[str, Callable[[], Call]], rounds: int, copies: int = 3) -> dict[str, dict[str, float]]:
    """Time calls in turn, each of several layers of a kind, as layers differ in where their memory lies."""
    kinds = [(name, make()) for _ in range(copies) for name, make in build.items()]
    times: dict[str, list[float]] = {name: [] for name in build}
    shuffled = random.Random(0)
    for number in range(rounds + 5):
        shuffled.shuffle(kinds)
        for name, call in kinds:
            start = time.thread_time()
            call()
            if number >= 5:
                times[name].append(time.thread_time() - start)
    first = median(next(iter(times.values())))
    return {
        name: {"median_ms": round(1000 * median(own), 4), "ratio": round(median(own) / first, 3)} for name, own in times.items()
    }


def evaluated(build: Callable[[], nn.Module], x: Tensor, is_kept: bool = True) -> Call:
    """Return a call of a new layer in evaluation; if no matrix is to be kept, it is dropped before every call."""
    layer = build().eval()
    weights = [] if is_kept else [module for module in layer.modules() if isinstance(module, Weight)]

    def call() -> None:
        for weight in weights:
            weight.__dict__["_kept"] = None
        with torch.inference_mode():
            layer(x)

    return call


def trained(build: Callable[[], nn.Module], x: Tensor) -> Call:
    """Return a call of a new layer, forwards and backwards."""
    layer = build().train()

    def call() -> None:
        layer(x).sum().backward()
        layer.zero_grad(set_to_none=True)

    return call


def layers(torchs: type[nn.Module], ours: Callable[..., nn.Module], *sizes: int) -> dict[str, Callable[[], nn.Module]]:
    """Return torch's layer and ours over some algebras, to be built."""
    return {"torch": partial(torchs, *sizes), **{spec: partial(ours, algebra(spec), *sizes) for spec in SPECS}}


def measure(rounds: int) -> list[dict[str, Any]]:
    """Measure every shape."""
    rows: list[dict[str, Any]] = []
    for size in (512, 4096):
        x, found = torch.randn(1, size), layers(nn.Linear, Linear, size, size)
        build = {name: partial(evaluated, made, x) for name, made in found.items()}
        build["quaternion, assembled at every call"] = partial(evaluated, found["quaternion"], x, is_kept=False)
        rows.append({"what": "evaluation", "layer": f"Linear({size}, {size})", "rows": 1, **side_by_side(build, rounds)})
    x, found = torch.randn(1, 1, 512), layers(nn.LSTM, LSTM, 512, 512)
    build = {name: partial(evaluated, made, x) for name, made in found.items()}
    rows.append({"what": "evaluation", "layer": "LSTM(512, 512), one step", "rows": 1, **side_by_side(build, rounds)})
    x, found = torch.randn(256, 512), layers(nn.Linear, Linear, 512, 1024)
    build = {name: partial(trained, made, x) for name, made in found.items()}
    rows.append({"what": "forward and backward", "layer": "Linear(512, 1024)", "rows": 256, **side_by_side(build, rounds)})
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    result = {"machine": machine.info(), "rounds": options.rounds, "rows": measure(options.rounds)}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
