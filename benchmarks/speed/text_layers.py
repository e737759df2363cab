"""Compare LSTM and attention over several algebras with torch's layers: ``python -m benchmarks.speed.text_layers``.

Forward and backward passes of all layers alternate on one thread. Writes results/text_layers.json.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import machine
from zoo.algebras import algebra
from zoo.nn import LSTM, Attention
from zoo.training.bench import side_by_side

RESULTS = machine.RESULTS / "text_layers.json"
ALGEBRAS = ("real", "quaternion", "octonion", "phm-4")
LSTM_SHAPES = ((32, 32, 256), (32, 64, 296), (64, 20, 128))
ATTENTION_SHAPES = ((32, 32, 256), (8, 256, 128))
HEADS, ROUNDS = 4, 15


def compare(layers: dict[str, Callable[[Tensor], Tensor]], shape: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Time the forward and backward passes of all layers on inputs [B, L, C], relative to the first layer."""
    x = torch.randn(shape)
    calls = {name: lambda layer=layer: layer(x).sum().backward() for name, layer in layers.items()}  # type: ignore[misc]
    times = side_by_side(calls, ROUNDS, warmup=2)
    return [{"layer": name, "shape": list(shape), "ms": row["ms"], "ratio": row["ratio"]} for name, row in times.items()]


def recurrent(size: int) -> dict[str, Any]:
    """Create the LSTMs of one size, torch's first."""
    lstms = {"torch.nn.LSTM": nn.LSTM(size, size, batch_first=True)}
    lstms |= {f"LSTM over {spec}": LSTM(size, size, batch_first=True, algebra=algebra(spec)) for spec in ALGEBRAS}
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
    ours = {f"Attention over {spec}, {score}": Attention(size, HEADS, algebra=spec, score=score) for spec, score in scores}
    return {"torch.nn.MultiheadAttention": lambda x: torchs(x, x, x, need_weights=False)[0], **ours}


def main() -> None:
    """Measure, print and write the results."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for create, shapes in ((recurrent, LSTM_SHAPES), (attentive, ATTENTION_SHAPES)):
        for shape in shapes:
            rows += compare(create(shape[2]), shape)
    for row in rows:
        print(f"{row['layer']:<34} {'x'.join(map(str, row['shape'])):<12} {row['ms']:>8.2f} ms  {row['ratio']:.2f}")
    machine.write(RESULTS, {"machine": machine.info(), "rows": rows})


if __name__ == "__main__":
    main()
