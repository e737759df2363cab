"""Measure time and memory of attention with product and hermitian scores: ``python -m benchmarks.speed.attention_products``.

Compares forward and backward passes on one thread with torch's fused attention of the same heads, and with an implementation
that saves the scores for the backward pass. The implementations run alternately and are compared by processor time; the peak
memory of each is measured in a separate process. Writes results/attention_products.json.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import machine
from benchmarks.speed.memory import resident
from zoo.algebras import algebra
from zoo.nn.scores import _attend_by_definition, arrange, attend

RESULTS = machine.RESULTS / "attention_products.json"
SHAPES = {"time": (2, 4, 1024, 64), "memory": (4, 8, 1024, 64)}
ALGEBRAS, SCORES, ROUNDS = ("complex", "quaternion"), ("product", "hermitian"), 5
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def implementations(spec: str, causal: bool) -> dict[str, Attend]:
    """Return torch's attention, and for each score our attention and the one that saves the scores."""
    table = algebra(spec).structure
    calls: dict[str, Attend] = {"dot": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)}
    for score in SCORES:

        def saved(q: Tensor, k: Tensor, v: Tensor, score: str = score) -> Tensor:
            return _attend_by_definition(q, arrange(k, table, score), v, score, None, causal, 0.0, q.shape[-1] ** -0.5)

        def ours(q: Tensor, k: Tensor, v: Tensor, score: str = score) -> Tensor:
            return attend(q, k if score == "dot" else arrange(k, table, score), v, score, causal=causal)

        calls |= {score: ours, f"{score}, scores kept": saved}
    return calls


def inputs(kind: str) -> list[Tensor]:
    """Draw queries, keys and values [B, H, L, c]."""
    torch.manual_seed(0)
    return [torch.randn(SHAPES[kind], requires_grad=True) for _ in range(3)]


def milliseconds(spec: str, causal: bool) -> dict[str, float]:
    """Return the median processor time of each implementation, run alternately."""
    qkv, calls = inputs("time"), implementations(spec, causal)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            start = time.process_time()
            call(*qkv).sum().backward()
            times[name].append(1000 * (time.process_time() - start))
    return {name: median(values[1:]) for name, values in times.items()}


def megabytes(spec: str, name: str) -> float:
    """Return the increase of this process's peak resident memory by causal attention."""
    qkv, call = inputs("memory"), implementations(spec, causal=True)[name]
    call(*(t[:1, :1, :64].detach().requires_grad_() for t in qkv)).sum().backward()
    before = resident("VmHWM")
    call(*qkv).sum().backward()
    return (resident("VmHWM") - before) / 2**20


def peak(spec: str, name: str) -> float:
    """Measure the memory of an implementation in a separate process."""
    command = [sys.executable, "-m", "benchmarks.speed.attention_products", spec, name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure and write the results, or print the memory of the implementation given as arguments."""
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(megabytes(*sys.argv[1:3]))
        return
    rows: list[dict[str, Any]] = []
    for spec in ALGEBRAS:
        peaks = {name: peak(spec, name) for name in implementations(spec, causal=True)}
        for causal in (False, True):
            times = milliseconds(spec, causal)
            for score in SCORES:
                kept = f"{score}, scores kept"
                row: dict[str, Any] = {"algebra": spec, "causal": causal, "score": score, "ms": round(times[score], 1)}
                row |= {f"time_to_{key}": round(times[score] / times[of], 3) for key, of in (("dot", "dot"), ("kept", kept))}
                if causal:
                    row |= {"mb": round(peaks[score]), "memory_to_kept": round(peaks[score] / peaks[kept], 3)}
                rows.append(row)
                print(row, flush=True)
    machine.write(RESULTS, {"machine": machine.info(), "commit": machine.commit(), "shapes": SHAPES, "rows": rows})


if __name__ == "__main__":
    main()
