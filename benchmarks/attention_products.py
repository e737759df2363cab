"""Time and memory of attention by product and hermitian: ``python -m benchmarks.attention_products``.

Forward and backward, one thread, beside torch's fused attention of the same heads and beside the same scores written out, whose
matrices are kept for the backward pass. The contenders take turns and are compared by the processor's time; the peak of the
memory is that of a process for each. Writes results/attention_products.json.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import machine
from benchmarks.papers import commit
from zoo.algebras import algebra
from zoo.layers.scores import _written_out, arrange, attend

RESULTS = Path(__file__).parent / "results" / "attention_products.json"
SHAPES = {"time": (2, 4, 1024, 64), "memory": (4, 8, 1024, 64)}
ALGEBRAS, SCORES, ROUNDS = ("complex", "quaternion"), ("product", "hermitian"), 5
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def contenders(spec: str, causal: bool) -> dict[str, Attend]:
    """Return torch's attention, and each score as it is computed and as it is written out."""
    table = algebra(spec).structure
    found: dict[str, Attend] = {"dot": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)}
    for score in SCORES:

        def kept(q: Tensor, k: Tensor, v: Tensor, score: str = score) -> Tensor:
            return _written_out(q, arrange(k, table, score), v, score, None, causal, 0.0, q.shape[-1] ** -0.5)

        def ours(q: Tensor, k: Tensor, v: Tensor, score: str = score) -> Tensor:
            return attend(q, k, v, table, score, causal=causal)

        found |= {score: ours, f"{score}, scores kept": kept}
    return found


def inputs(kind: str) -> list[Tensor]:
    """Draw queries, keys and values [B, H, L, c]."""
    torch.manual_seed(0)
    return [torch.randn(SHAPES[kind], requires_grad=True) for _ in range(3)]


def milliseconds(spec: str, causal: bool) -> dict[str, float]:
    """Return the median processor time of every contender, which take turns."""
    given, all_of_them = inputs("time"), contenders(spec, causal)
    spent: dict[str, list[float]] = {name: [] for name in all_of_them}
    for _ in range(ROUNDS + 1):
        for name, call in all_of_them.items():
            start = time.process_time()
            call(*given).sum().backward()
            spent[name].append(1000 * (time.process_time() - start))
    return {name: median(values[1:]) for name, values in spent.items()}


def megabytes(spec: str, name: str) -> float:
    """Return how much the resident memory of this process rises in causal attention."""
    given, call = inputs("memory"), contenders(spec, causal=True)[name]
    call(*(t[:1, :1, :64].detach().requires_grad_() for t in given)).sum().backward()
    before = highest()
    call(*given).sum().backward()
    return highest() - before


def highest() -> float:
    """Return the peak of this process's resident memory in megabytes, as Linux tells it."""
    (line,) = (line for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def peak(spec: str, name: str) -> float:
    """Measure the memory in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.attention_products", spec, name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure, print and write; with arguments, the memory of one contender."""
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(megabytes(*sys.argv[1:3]))
        return
    rows: list[dict[str, Any]] = []
    for spec in ALGEBRAS:
        peaks = {name: peak(spec, name) for name in contenders(spec, causal=True)}
        for causal in (False, True):
            times = milliseconds(spec, causal)
            for score in SCORES:
                kept = f"{score}, scores kept"
                row: dict[str, Any] = {"algebra": spec, "causal": causal, "score": score, "ms": round(times[score], 1)}
                row |= {
                    "time_to_dot": round(times[score] / times["dot"], 3),
                    "time_to_kept": round(times[score] / times[kept], 3),
                }
                if causal:
                    row |= {"mb": round(peaks[score]), "memory_to_kept": round(peaks[score] / peaks[kept], 3)}
                rows.append(row)
                print(row, flush=True)
    found = {"machine": machine.info(), "commit": commit(), "shapes": SHAPES, "rows": rows}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
