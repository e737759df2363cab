r"""The choice of a kernel: what each would cost, from the shapes and a few numbers that are measured on a machine.

All are times in seconds, of one product of ``rows`` rows with a weight, forward, or forward and backward. A product of matrices
[r, i] [i, o] takes 2 r i o operations at the speed of the machine, less where i or o are small, and reads at least its matrix;
what only moves numbers takes their bytes. Kernels that are none of these (a GPU's, or for types that a processor is fast with)
are not predicted: there the block kernel stays, unless another is asked for.
"""

import json
import platform
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zoo.errors import InputError
from zoo.kernels.block import AxisLayout
from zoo.kernels.factored import FEWEST_ROWS, TILE
from zoo.registry.home import home

KERNELS = ("auto", "block", "factored", "thin")
"""What may be asked for: ``block`` is one product with the real matrix, which is kept in evaluation."""

BYTES = 4
FORWARD_PASSES = 3
"""How often a tile is moved as it is, forward: copied in, combined, copied out; what is combined comes on top."""
MARGINS = {"block": 1.0, "factored": 0.97, "thin": 0.8}
"""What share of the time of block another kernel may promise at most: predictions are no better, least of short times."""


class Machine(NamedTuple):
    """What the plan knows about a machine; the defaults are of 2 cores with AVX-512, `zoo bench --calibrate` measures them."""

    speed: float = 1.5e11
    """Operations a second, of one thread on large float32 matrices."""
    half_width: float = 11.0
    """The width of a matrix at which the speed is half."""
    traffic: float = 1.3e10
    """Bytes a second, of one thread that combines components."""
    reading: float = 4.5e10
    """Bytes a second, of all threads that read a matrix for one row."""
    call: float = 5e-6
    """Seconds for an operation that does almost nothing."""
    handover: float = 3e-4
    """Seconds to share out work to threads that are not torch's, and to wait for them."""


class Work(NamedTuple):
    """One product: rows, layouts, the dimension m of a weight, the rank R of the factors or None, and how it is used."""

    rows: int
    out: AxisLayout
    inp: AxisLayout
    m: int
    rank: int | None
    training: bool
    threads: int
    learns_factors: bool = False


def choose(work: Work, machine: Machine | None = None) -> str:
    """Return the kernel with the least predicted time: ``block``, ``factored`` or ``thin``."""
    found = costs(work, machine or this_machine())
    return min(found, key=lambda kernel: found[kernel] / MARGINS[kernel])


def costs(work: Work, machine: Machine) -> dict[str, float]:
    """Predict the seconds of every kernel that can do this."""
    found = {"block": _block(work, machine)}
    if work.rank is not None and work.rows:
        found["factored"] = _factored(work, machine)
    if not work.training and work.rows:
        found["thin"] = _thin(work, machine)
    return found


def real(work: Work, machine: Machine) -> float:
    """Predict the seconds of the real layer of the same size."""
    once = _product(work.rows, work.inp.channels, work.out.channels, machine, work.threads) + machine.call
    return 3 * once if work.training else once


def _product(rows: int, inp: int, out: int, machine: Machine, threads: int) -> float:
    narrow = (1 + machine.half_width / inp) * (1 + machine.half_width / out)
    return max(2 * rows * inp * out / (machine.speed * threads) * narrow, BYTES * inp * out / machine.reading)


def _block(work: Work, machine: Machine) -> float:
    """In training the matrix is assembled, its gradient summed; in evaluation it is kept."""
    if not work.training:
        return real(work, machine) + 2 * machine.call
    moved = 6 * BYTES * work.inp.channels * work.out.channels
    return real(work, machine) + moved / machine.traffic + 8 * machine.call


def _factored(work: Work, machine: Machine) -> float:
    rank, n, rows = work.rank or 0, work.inp.n, work.rows
    i, o = work.inp.elements, work.out.elements
    threads = min(work.threads, max(1, rows // FEWEST_ROWS))
    passes = (3 + work.learns_factors) if work.training else 1
    if work.training:
        moved = BYTES * rows * (i * (9 * n + 3 * rank) + o * (6 * n + 2 * rank))
    else:
        moved = BYTES * rows * (i + o) * (FORWARD_PASSES * n + rank)
    combined = 2 * rank * work.m * i * o * (3 if work.training else 1) / machine.speed
    tiles = -(-rows // TILE)
    calls = tiles * (14 if work.training else 5) * machine.call
    shared = passes * rank * _product(rows, i, o, machine, threads) + moved / (machine.traffic * threads) + calls / threads
    # Calls into torch take turns, whatever the number of threads.
    return max(shared, calls) + combined + (4 if work.training else 2) * machine.handover * (work.threads > 1)


def _thin(work: Work, machine: Machine) -> float:
    n, rows, i, o = work.inp.n, work.rows, work.inp.elements, work.out.elements
    # For several columns a matrix is read at less of the speed that it is read at for one.
    pairs = max(_product(rows * n, i, work.m * o, machine, work.threads), 1.3 * BYTES * work.m * i * o / machine.reading)
    return pairs + 3 * BYTES * rows * n * work.m * o / machine.traffic + 14 * machine.call


def this_machine() -> Machine:
    """Return what was measured on this machine with as many threads as torch uses now, or the defaults."""
    return _measured(torch.get_num_threads())


@cache
def _measured(threads: int) -> Machine:
    return stored().get(name(), Machine())


def name() -> str:
    """Name the processor and the threads, which the numbers are of."""
    return f"{processor()}, {torch.get_num_threads()} threads"


def processor() -> str:
    """Return the processor's own name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def path() -> Path:
    """Return the file with the measured numbers of all machines that share the user's folder."""
    return home() / "kernels.json"


def stored() -> dict[str, Machine]:
    """Read the measured numbers by the names of machines; none if there is no such file, or no folder that may be read.

    Raises:
        InputError: If the file is damaged.
    """
    try:
        text = path().read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError, InputError):
        return {}
    try:
        found: Any = json.loads(text)
        machines = {str(key): Machine(**{k: float(v) for k, v in values.items()}) for key, values in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path()} cannot be read ({error}): delete it, or run zoo bench --calibrate") from None
    if any(not (0 < value < float("inf")) for machine in machines.values() for value in machine):
        raise InputError(f"{path()} holds numbers that are not positive: delete it, or run zoo bench --calibrate")
    return machines
