"""Compare the kernels that the plan can choose on 60 shapes: ``python -m benchmarks.speed.plan [--only training]``.

With ``--only none`` it measures nothing and only plans the stored shapes again.

Measures ``block``, ``factored``, ``fused`` and ``thin`` alternately in one process and stores their times with the instruction
set of this process. To measure AVX2 on a processor with AVX-512, set ATEN_CPU_CAPABILITY=avx2 (torch and the fused operator),
MKL_ENABLE_INSTRUCTIONS=AVX2 (torch's products in float32) and ONEDNN_MAX_CPU_ISA=AVX2 (in bfloat16). Writes results/plan.json.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

import zoo
from benchmarks import machine
from benchmarks.speed.fused import evaluated, trained
from zoo.kernels import Work, axis_layout, compiled
from zoo.kernels.base import kernels
from zoo.nn import Linear, set_kernel
from zoo.training.bench import Call, side_by_side

RESULTS = machine.RESULTS / "plan.json"
RANKS = {"complex": (2, 3), "quaternion": (4, 8), "octonion": (8, 30)}  # dimension, and multiplications of the factored product
THIN_ROWS = 64  # rows up to which the thin kernel is measured
SLOWER = 1.05
"""Largest accepted time of the planned kernel, relative to ``block``."""


class Shape(NamedTuple):
    """A product of a linear layer."""

    algebra: str
    rows: int
    inp: int
    out: int
    mode: str  # training, evaluation, or evaluation inside `zoo.keep_matrices` (kept)

    def work(self, instructions: str, threads: int) -> Work:
        """Return the description that the plan receives."""
        n, rank = RANKS[self.algebra]
        layouts = axis_layout(self.out, n), axis_layout(self.inp, n)
        modes = self.mode == "training", self.mode == "kept"
        return Work(self.rows, *layouts, n, rank, *modes, threads, instructions=instructions)

    def call(self, kernel: str) -> Call:
        """Return a call of the layer with a kernel."""
        layer = Linear(self.inp, self.out, algebra=zoo.algebra(self.algebra))
        set_kernel(layer, kernel)
        if self.mode == "training":
            return trained(layer, self.rows, self.inp)
        return evaluated(layer, torch.randn(self.rows, self.inp), self.mode == "kept")


def shapes() -> Iterator[Shape]:
    """Yield the 60 shapes."""
    for algebra, rows, size in itertools.product(RANKS, (256, 1024, 4096), (128, 256, 512, 1024)):
        yield Shape(algebra, rows, size, size, "training")
    for algebra, sizes in itertools.product(("quaternion", "octonion"), ((192, 768), (768, 192))):
        yield Shape(algebra, 1024, *sizes, "training")
    for size, rows in itertools.product((256, 1024, 4096), (1, 8, 64, 512)):
        yield Shape("quaternion", rows, size, size, "evaluation")
    for size, rows in itertools.product((256, 1024), (1, 8, 64, 512)):
        yield Shape("quaternion", rows, size, size, "kept")


def measure(shape: Shape, seconds: float) -> dict[str, Any]:
    """Measure the kernels of a shape for some seconds; return their milliseconds, and ratios to ``block``."""
    names = ["block", "factored", "fused"] if shape.rows > 8 else ["block", "fused"]
    names += ["thin"] if shape.mode != "training" and shape.rows <= THIN_ROWS else []
    calls = {name: shape.call(name) for name in names}
    start = time.perf_counter()
    for call in calls.values():
        call()
    once = time.perf_counter() - start
    measured = side_by_side(calls, max(5, min(200, int(seconds / once))))
    return {**shape._asdict(), "ms": {name: row["ms"] for name, row in measured.items()}, "ratio": _ratios(measured)}


def _ratios(measured: dict[str, dict[str, float]]) -> dict[str, float]:
    return {name: row["ratio"] for name, row in measured.items() if name != "block"}


def chosen(row: dict[str, Any], instructions: str, threads: int) -> tuple[str, float]:
    """Return the kernel of the lowest cost for a measured shape, and its measured time relative to ``block``.

    It is what the plan chooses if the operator is available (`zoo.kernels.compiled.is_expected`).
    """
    work = Shape(*(row[key] for key in Shape._fields)).work(instructions, threads)
    name = min((kernel for kernel in kernels() if kernel.can(work)), key=lambda kernel: kernel.cost(work)).name
    return name, row["ratio"].get(name, 1.0)


def add_plan(results: dict[str, Any]) -> None:
    """Store the planned kernels of all measured shapes; they depend on the code, not on this machine."""
    for name, entry in results.items():
        for row in entry["rows"]:
            row["planned"], row["planned_ratio"] = chosen(row, name, entry["machine"]["threads"])


def table(results: dict[str, Any]) -> list[str]:
    """Format the planned kernels of all instruction sets, and their times relative to ``block``."""
    lines = [f"| algebra | rows | features | mode | {' | '.join(results)} |", f"|---|---:|---:|---|{'---|' * len(results)}"]
    for rows in zip(*(entry["rows"] for entry in results.values()), strict=True):
        cells = [row["planned"] + ("" if row["planned"] == "block" else f" {row['planned_ratio']:.2f}") for row in rows]
        first = rows[0]
        size = f"{first['inp']} to {first['out']}"
        lines.append(f"| {first['algebra']} | {first['rows']:,} | {size} | {first['mode']} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure the selected shapes and store them with those of the other instruction sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="measure only one mode or algebra")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds for each shape")
    options = parser.parse_args()
    if not compiled.is_available():
        raise SystemExit(compiled.status())
    where = machine.info()
    stored: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    name = where["capability"]
    entry = stored.get(name, {"rows": []})
    known = {tuple(row[key] for key in Shape._fields): row for row in entry["rows"]}
    for shape in shapes():
        if options.only in f"{shape.mode} {shape.algebra}":
            row = known[shape] = measure(shape, options.seconds)
            print(*shape, row["ratio"], *chosen(row, name, where["threads"]), flush=True)
            entry |= {"machine": where, "commit": machine.commit()}
    stored[name] = entry | {"rows": [known[shape] for shape in shapes() if shape in known]}
    add_plan(stored)
    machine.write_sets(RESULTS, stored)


if __name__ == "__main__":
    main()
