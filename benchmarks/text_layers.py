"""Compare LSTM and attention over several algebras with torch's layers: ``python -m benchmarks.text_layers``.

Forward and backward passes of all layers alternate on one thread; ratios are ratios of medians. Writes
results/text_layers.json.
"""

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
LSTM_SHAPES = ((32, 32, 256), (32, 64, 296), (64, 20, 128))
ATTENTION_SHAPES = ((32, 32, 256), (8, 256, 128))
HEADS, ROUNDS = 4, 15


def compare(layers: dict[str, Callable[[Tensor], Tensor]], shape: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Time all layers alternately on inputs [B, L, C]; return medians and their ratios to the first layer."""
    x = torch.randn(shape)
    times: dict[str, list[float]] = {name: [] for name in layers}
    for _ in range(ROUNDS + 2):
        for name, call in layers.items():
            start = time.perf_counter()
            call(x).sum().backward()
            times[name].append(1000 * (time.perf_counter() - start))
    medians = {name: median(values[2:]) for name, values in times.items()}
    first = next(iter(medians.values()))
    return [
        {"layer": name, "shape": list(shape), "ms": round(value, 3), "ratio": round(value / first, 3)}
        for name, value in medians.items()
    ]


def recurrent(size: int) -> dict[str, Any]:
    """Create the LSTMs of one size, torch's first."""
    lstms = {"torch.nn.LSTM": nn.LSTM(size, size, batch_first=True)}
    lstms |= {f"LSTM over {spec}": LSTM(algebra(spec), size, size) for spec in ALGEBRAS}
    return {name: lambda x, lstm=lstm: lstm(x)[0] for name, lstm in lstms.items()}


def attentive(size: int) -> dict[str, Any]:
    """Create the attention layers of one size, torch's first."""
    torchs = nn.MultiheadAttention(size, HEADS, batch_first=True)
    scores = [
        *((spec, "dot") for spec in ALGEBRAS),
        ("quaternion", "product"),
        ("octonion", "product"),
        ("complex", "hermitian"),
    ]
    ours = {f"Attention over {spec}, {score}": Attention(algebra(spec), size, HEADS, score=score) for spec, score in scores}
    return {"torch.nn.MultiheadAttention": lambda x: torchs(x, x, x, need_weights=False)[0], **ours}


def main() -> None:
    """Measure, print and write the results."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for shape in LSTM_SHAPES:
        rows += compare(recurrent(shape[2]), shape)
    for shape in ATTENTION_SHAPES:
        rows += compare(attentive(shape[2]), shape)
    for row in rows:
        print(f"{row['layer']:<34} {'x'.join(map(str, row['shape'])):<12} {row['ms']:>8.2f} ms  {row['ratio']:.2f}")
    machine.write(RESULTS, {"machine": machine.info(), "rows": rows})


if __name__ == "__main__":
    main()
