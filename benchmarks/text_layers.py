"""Time the LSTM and attention over several algebras beside torch's own layers: ``python -m benchmarks.text_layers``.

One thread, forward and backward; the contenders take turns, and a ratio is one of medians. Writes results/text_layers.json.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import machine
from zoo.algebras import algebra
from zoo.layers import LSTM, Attention

RESULTS = Path(__file__).parent / "results" / "text_layers.json"
ALGEBRAS = ("real", "quaternion", "octonion", "phm-4")
LSTM_SHAPES = ((32, 32, 256), (32, 64, 300), (64, 20, 128))
ATTENTION_SHAPES = ((32, 32, 256), (8, 256, 128))
HEADS, ROUNDS = 4, 15


def step(module: nn.Module, call: Callable[[nn.Module, Tensor], Tensor], x: Tensor) -> float:
    """Return the milliseconds of one forward and backward pass."""
    start = time.perf_counter()
    call(module, x).sum().backward()
    return 1000 * (time.perf_counter() - start)


def race(
    contenders: dict[str, tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor]]], shape: tuple[int, int, int]
) -> list[dict[str, Any]]:
    """Time all contenders in turns on inputs [B, L, C] and return medians and ratios to the first."""
    x = torch.randn(shape)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(ROUNDS + 2):
        for name, (module, call) in contenders.items():
            spent = step(module, call, x)
            if turn > 1:
                times[name].append(spent)
    medians = {name: median(values) for name, values in times.items()}
    first = next(iter(medians.values()))
    return [
        {"layer": name, "shape": list(shape), "ms": round(value, 3), "ratio": round(value / first, 3)}
        for name, value in medians.items()
    ]


def recurrent(size: int) -> dict[str, Any]:
    """The LSTMs of one size, torch's first."""

    def call(module: nn.Module, x: Tensor) -> Tensor:
        return module(x)[0]  # type: ignore[no-any-return]

    ours = {f"LSTM over {spec}": (LSTM(algebra(spec), size - size % 8, size - size % 8), call) for spec in ALGEBRAS}
    return {"torch.nn.LSTM": (nn.LSTM(size - size % 8, size - size % 8, batch_first=True), call), **ours}


def attentive(size: int) -> dict[str, Any]:
    """The attentions of one size, torch's first; the other scores over the last algebras only."""
    theirs = nn.MultiheadAttention(size, HEADS, batch_first=True)
    plans = [(spec, "dot") for spec in ALGEBRAS] + [
        ("quaternion", "product"),
        ("octonion", "product"),
        ("complex", "hermitian"),
    ]
    ours = {
        f"Attention over {spec}, {score}": (Attention(algebra(spec), size, HEADS, score=score), lambda module, x: module(x))
        for spec, score in plans
    }
    return {"torch.nn.MultiheadAttention": (theirs, lambda module, x: module(x, x, x, need_weights=False)[0]), **ours}


def main() -> None:
    """Measure, print and write."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for batch, length, size in LSTM_SHAPES:
        rows += race(recurrent(size), (batch, length, size - size % 8))
    for shape in ATTENTION_SHAPES:
        rows += race(attentive(shape[2]), shape)
    for row in rows:
        print(f"{row['layer']:<34} {'x'.join(map(str, row['shape'])):<12} {row['ms']:>8.2f} ms  {row['ratio']:.2f}")
    RESULTS.write_text(json.dumps({"machine": machine.info(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
