"""Compare convolutional networks with channels last and first in memory: ``python -m benchmarks.speed.convnets``.

Training steps of both layouts alternate on one thread. Writes results/convnets.json.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import zoo
from benchmarks import machine
from zoo.training.bench import side_by_side

RESULTS = machine.RESULTS / "convnets.json"
NETS = (
    ("resnet-8", "real"),
    ("resnet-8(channels=[32, 64, 128])", "quaternion"),
    ("resnet-8(channels=[32, 64, 128])", "octonion"),
    ("conv-4", "real"),
    ("conv-4", "quaternion"),
)
BATCH, ROUNDS = 64, 9


def step(net: nn.Module, dtype: torch.dtype) -> Callable[[], None]:
    """Return a function that computes a loss on CIFAR-sized images and its gradients."""
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))

    def run() -> None:
        net.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
            logits = net(images)
        F.cross_entropy(logits.float(), labels).backward()

    return run


def compare(variant: str, algebra: str, dtype: torch.dtype) -> dict[str, Any]:
    """Time a step with channels last, relative to channels first."""
    net = zoo.backbone(f"convnet/{variant}", algebra)
    calls = {"first": step(nn.Sequential(*net.children()), dtype), "last": step(net, dtype)}
    times = side_by_side(calls, ROUNDS, warmup=2)
    name = {"net": f"convnet/{variant}", "algebra": algebra, "dtype": str(dtype).removeprefix("torch.")}
    return name | {layout: row["ms"] for layout, row in times.items()} | {"ratio": times["last"]["ratio"]}


def table(results: dict[str, Any]) -> list[str]:
    """Format the results for docs/speed.md."""
    lines = ["| network | algebra | dtype | ratio |", "|---|---|---|---:|"]
    return lines + [f"| {row['net']} | {row['algebra']} | {row['dtype']} | {row['ratio']:.2f} |" for row in results["rows"]]


def main() -> None:
    """Measure, print and write the results."""
    torch.set_num_threads(1)
    rows = [compare(*net, dtype) for net in NETS for dtype in (torch.float32, torch.bfloat16)]
    results = {"machine": machine.info(), "commit": machine.commit(), "rows": rows}
    print("\n".join(table(results)))
    machine.write(RESULTS, results)


if __name__ == "__main__":
    main()
