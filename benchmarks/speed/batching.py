"""Count operators and host time of training steps with matrices batched or not: ``python -m benchmarks.speed.batching``.

The networks are so small that the time of a step on one thread of a CPU is host time, as it is on a GPU. Operators are those
that the profiler sees, forward, backward and AdamW. Ratios are to the real network, in the same run. Writes
results/batching.json.
"""

from typing import Any

import torch
from torch.nn import functional as F
from torch.profiler import profile

import zoo
from benchmarks import machine
from zoo.nn import weight
from zoo.training.bench import Call, side_by_side

RESULTS = machine.RESULTS / "batching.json"
NETWORKS = {"gpt(dim=64, depth=12, heads=4, ffn=256)": (2, 16), "vit(dim=64, depth=12, heads=4, patch=8)": (2, 32)}
ALGEBRAS = ("real", "quaternion", "octonion", "phm-4")


def step(spec: str, algebra: str, sizes: tuple[int, int], batched: bool) -> Call:
    """Return a training step; ``batched`` networks assemble their matrices together."""
    torch.manual_seed(0)
    batch, size = sizes
    if spec.startswith("gpt"):
        net: Any = zoo.backbone(spec, algebra, vocab_size=32, max_length=size)
        x, target = (torch.randint(1, 32, (batch, size)) for _ in range(2))
    else:
        net = zoo.backbone(spec, algebra, in_channels=3, image_size=size, num_classes=10)
        x, target = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)

    def call() -> None:
        weight.BATCHED = ("cpu",) if batched else ()
        F.cross_entropy(net(x).flatten(0, -2), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return call


def operators(call: Call) -> int:
    """Count the operators of a step; one that assembles matrices counts once, as it is one launch on a GPU."""
    call()
    with profile() as profiled:
        call()
    return sum(event.name.startswith(("aten::", "zoo::")) and not is_inside(event) for event in profiled.events())


def is_inside(event: Any) -> bool:
    """Return whether an event is part of an operator that assembles matrices."""
    while (event := event.cpu_parent) is not None:
        if event.name.startswith("zoo::matrices"):
            return True
    return False


def main() -> None:
    """Measure all networks and write the results."""
    torch.set_num_threads(1)
    rows = []
    for spec, sizes in NETWORKS.items():
        calls = {"real": step(spec, "real", sizes, False)}
        for algebra in ALGEBRAS[1:]:
            calls |= {f"{algebra}, batched": step(spec, algebra, sizes, True), algebra: step(spec, algebra, sizes, False)}
        times = side_by_side(calls, rounds=40)
        rows += [{"network": spec, "over": name, "operators": operators(call)} | times[name] for name, call in calls.items()]
    for row in rows:
        print(row)
    machine.write_rows(RESULTS, {"machine": machine.info(), "commit": machine.commit(), "rows": rows})


if __name__ == "__main__":
    main()
