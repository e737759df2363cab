r"""The choice of a kernel: what each would cost, from the shapes and a few numbers that are measured on a machine.

All are times in seconds, of one product of ``rows`` rows with a weight, forward, or forward and backward. A product of matrices
[r, i] [i, o] takes 2 r i o operations at the speed of the machine, less where i or o are small, and reads at least its matrix;
what only moves numbers takes their bytes. On a GPU it is block or Triton's kernel, by numbers that were measured on that GPU in
the type of the product; without them, and for types that a processor is fast with, the block kernel stays, unless another is
asked for.
"""

import json
import platform
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from zoo.errors import InputError
from zoo.kernels.base import AxisLayout
from zoo.kernels.factored import FEWEST_ROWS, TILE
from zoo.kernels.thin import FEW_COLUMNS
from zoo.kernels.triton_linear import MOST_TERMS
from zoo.registry.home import home

KERNELS = ("auto", "block", "factored", "thin", "triton")
"""What may be asked for: ``block`` is one product with the real matrix, which is kept in evaluation."""

BYTES = 4
FORWARD_PASSES = 3
"""How often a tile is moved as it is, forward: copied in, combined, copied out; what is combined comes on top."""
CONV_TRAFFIC = {"training": 4.5, "evaluation": 3.0}
"""How often the components of a factored convolution are moved for each time that is counted: torch changes their order."""
MARGINS = {"block": 1.0, "factored": 0.97, "thin": 0.8, "triton": 0.9, "conv": 0.9}
"""What share of the time of block another kernel may promise at most: predictions are no better, least of short times."""


class Machine(NamedTuple):
    """What the plan knows about a machine; the defaults are of 2 cores with AVX-512, `zoo bench --calibrate` measures them."""

    speed: float = 1.6e11
    """Operations a second, of one thread on large float32 matrices."""
    half_width: float = 4.0
    """The width of a matrix at which the speed is half."""
    traffic: float = 1.7e10
    """Bytes a second, of one thread that combines components."""
    reading: float = 5e10
    """Bytes a second, of all threads that read a matrix for one row."""
    call: float = 1e-6
    """Seconds for an operation that does almost nothing."""
    handover: float = 3e-4
    """Seconds to share out work to threads that are not torch's, and to wait for them."""


class Accelerator(NamedTuple):
    """What the plan knows about a GPU for numbers of one type; there are no defaults, `zoo bench --calibrate` measures them."""

    speed: float
    """Operations a second of large products of matrices."""
    fused: float
    """Operations a second in the block products of Triton's kernel, of up to `zoo.kernels.triton_linear.MOST_TERMS` terms."""
    grouped: float
    """The same with more, which are worked on in groups that read the input again."""
    fused_training: float
    """The same as ``fused``, forward and backward."""
    grouped_training: float
    traffic: float
    """Bytes a second that are read and written."""
    call: float
    """Seconds to start a kernel."""


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
    return least(costs(work, machine or this_machine()))


def convolves_factored(work: Work, inputs: int, area: int, machine: Machine | None = None) -> bool:
    """Whether a convolution from ``inputs`` to ``work.rows`` places of a batch is faster by factors than by the real kernel."""
    machine, rank, n, passes = machine or this_machine(), work.rank, work.inp.n, 3 if work.training else 1
    if rank is None or not work.rows:
        return False
    i, o = work.inp.elements, work.out.elements
    numbers = BYTES * area * i * o
    block = passes * _product(work.rows, work.inp.channels, work.out.channels, machine, work.threads) * area
    block += 6 * n * n * numbers / machine.traffic if work.training else 0.0
    moved = (
        CONV_TRAFFIC["training" if work.training else "evaluation"]
        * passes
        * BYTES
        * (inputs * i + work.rows * o)
        * (n + 2 * rank)
    )
    factored = passes * rank * _product(work.rows, i, o, machine, work.threads) * area
    factored += moved / (machine.traffic * work.threads) + (6 if work.training else 2) * rank * numbers / machine.traffic
    return factored < MARGINS["conv"] * block


def choose_on_gpu(work: Work, dtype: torch.dtype) -> str:
    """Return ``triton`` if it promises less time on this GPU than ``block``, by numbers measured there; else ``block``."""
    gpu = this_gpu(dtype)
    return "block" if gpu is None else least(accelerated(work, dtype.itemsize, gpu))


def least(seconds: dict[str, float]) -> str:
    """Return the kernel that promises the least time, with its margin."""
    return min(seconds, key=lambda kernel: seconds[kernel] / MARGINS[kernel])


def costs(work: Work, machine: Machine) -> dict[str, float]:
    """Predict the seconds of every kernel that can do this."""
    found = {"block": _block(work, machine)}
    if work.rank is not None and work.rows:
        found["factored"] = _factored(work, machine)
    if not work.training and work.rows:
        found["thin"] = _thin(work, machine)
    return found


def accelerated(work: Work, size: int, gpu: Accelerator) -> dict[str, float]:
    """Predict the seconds of the kernels of a GPU, for numbers of ``size`` bytes."""
    rows, i, o, passes = work.rows, work.inp.channels, work.out.channels, 3 if work.training else 1
    assembled = (6 * size * i * o / gpu.traffic + 4 * gpu.call) if work.training else 0
    found = {"block": passes * (2 * rows * i * o / gpu.speed + gpu.call) + assembled}
    if work.rank is not None and rows:
        kinds = (gpu.fused, gpu.grouped), (gpu.fused_training, gpu.grouped_training)
        speed = kinds[work.training][work.rank > MOST_TERMS]
        products = 2 * work.rank * rows * work.inp.elements * work.out.elements
        found["triton"] = passes * (products / speed + gpu.call)
    return found


def real(work: Work, machine: Machine) -> float:
    """Predict the seconds of the real layer of the same size."""
    once = _product(work.rows, work.inp.channels, work.out.channels, machine, work.threads) + machine.call
    return 3 * once if work.training else once


def _product(rows: int, inp: int, out: int, machine: Machine, threads: int, unpacked: int = 1) -> float:
    """Predict one product; for more than ``unpacked`` rows its matrix is first brought into another order."""
    narrow, read = (1 + machine.half_width / inp) * (1 + machine.half_width / out), BYTES * inp * out / machine.reading
    multiplied = max(2 * rows * inp * out / (machine.speed * threads) * narrow, read)
    return multiplied + (2 * read if rows > unpacked else 0.0)


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
    tiles, combinations = -(-rows // TILE), BYTES * rank * i * o
    combined = 2 * rank * work.m * i * o * (3 if work.training else 1) / machine.speed
    # One thread writes the combinations of the weight and sums their gradients; in each tile a thread adds to its own gradient.
    combined += (6 + 3 * threads if work.training else 2) * combinations / machine.traffic
    moved += 2 * tiles * combinations if work.training else 0
    calls = tiles * (14 if work.training else 5) * machine.call
    shared = passes * rank * _product(rows, i, o, machine, threads) + moved / (machine.traffic * threads) + calls / threads
    # Calls into torch take turns, whatever the number of threads.
    return max(shared, calls) + combined + (4 if work.training else 2) * machine.handover * (work.threads > 1)


def _thin(work: Work, machine: Machine) -> float:
    n, rows, i, o = work.inp.n, work.rows, work.inp.elements, work.out.elements
    # For several columns a matrix is read at less of the speed that it is read at for one.
    pairs = _product(rows * n, i, work.m * o, machine, work.threads, unpacked=FEW_COLUMNS)
    pairs = max(pairs, 1.3 * BYTES * work.m * i * o / machine.reading)
    return pairs + 3 * BYTES * rows * n * work.m * o / machine.traffic + 36 * machine.call


def this_machine() -> Machine:
    """Return what was measured on this machine with as many threads as torch uses now, or the defaults."""
    return _measured(torch.get_num_threads())


@cache
def _measured(threads: int) -> Machine:
    found = stored().get(name(), Machine())
    return found if isinstance(found, Machine) else Machine()


def this_gpu(dtype: torch.dtype) -> Accelerator | None:
    """Return what was measured on the current GPU for a type, or None."""
    return _measured_gpu(gpu_name(dtype)) if torch.cuda.is_available() else None


@cache
def _measured_gpu(name: str) -> Accelerator | None:
    found = stored().get(name)
    return found if isinstance(found, Accelerator) else None


def gpu_name(dtype: torch.dtype) -> str:
    """Name the current GPU and a type; float32 may be multiplied as TensorFloat-32 (`torch.set_float32_matmul_precision`)."""
    kind = str(dtype).removeprefix("torch.")
    rounded = dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return f"{torch.cuda.get_device_name()}, {'tf32' if rounded else kind}"


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


def stored() -> dict[str, Machine | Accelerator]:
    """Read the measured numbers by the names of machines; none if there is no such file, or no folder that may be read.

    Raises:
        InputError: If the file is damaged.
    """
    try:
        text = path().read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError, InputError):
        return {}
    try:
        found: Any = json.loads(text)
        machines = {str(key): _numbers({k: float(v) for k, v in values.items()}) for key, values in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path()} cannot be read ({error}): delete it, or run zoo bench --calibrate") from None
    if any(not (0 < value < float("inf")) for machine in machines.values() for value in machine):
        raise InputError(f"{path()} holds numbers that are not positive: delete it, or run zoo bench --calibrate")
    return machines


def _numbers(values: dict[str, float]) -> Machine | Accelerator:
    return Accelerator(**values) if "fused" in values else Machine(**values)
