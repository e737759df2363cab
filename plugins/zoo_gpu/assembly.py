"""Assemble real matrices and sum their gradients on GPUs: one launch for up to 16 weights, see `zoo_gpu.source`."""

import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.errors import InputError
from zoo.kernels import Kernel, Part, Work
from zoo.kernels.assembly import fold, is_channels_last, unfold

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OLDEST = (8, 0)  # compute capability, of Triton itself
MOST_BLOCKS = 64  # blocks n * n of a matrix for which a kernel is compiled
TILE = (8, 128)  # elements of a program; (4, 128), (4, 256) and (16, 64) were equally fast on an H100
INTERPRETED_TILE = (32, 32)
ALIGNMENT = 16  # bytes
FUSED = {"enable_fp_fusion": True}  # multiplications and additions; from 3.10 on not the default of Triton
VECTOR = 8  # columns that are stored together: 16 bytes in bfloat16


class Triton(Kernel):
    """Matrices for the kernel ``block``; it multiplies nothing itself."""

    name = "triton"

    def can(self, work: Work) -> bool:
        """Return False."""
        return False

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return missing()

    def matrices(self, parts: Sequence[Part], dtype: torch.dtype) -> list[Tensor] | None:
        """Assemble matrices, or return None for a product, dtype, size or device that the kernels do not support."""
        if not all(supports(part, dtype) for part in parts):
            return None
        jobs = [Job.of(part, dtype) for part in parts]
        for group in groups(jobs):
            launch_assembly(group)
        return [job.matrix() for job in jobs]

    def matrix_gradients(self, parts: Sequence[Part], grads: Sequence[Tensor]) -> list[tuple[Tensor, Tensor | None]] | None:
        """Return the gradients, or None as `matrices`."""
        if not all(supports(part, g.dtype) for part, g in zip(parts, grads, strict=True)):
            return None
        jobs = [Job.of(part, g.dtype, g) for part, g in zip(parts, grads, strict=True)]
        for group in groups(jobs):
            launch_gradients(group)
        return [job.gradients() for job in jobs]


def is_interpreted() -> bool:
    """Return whether Triton's interpreter runs the kernels, on any device, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def multiplies(dtype: torch.dtype) -> bool:
    """Return whether kernels multiply matrices of a dtype; the interpreter would multiply the bits of bfloat16 numbers."""
    return dtype in DTYPES and not (is_interpreted() and dtype == torch.bfloat16)


def input_precision() -> str:
    """Return how kernels multiply matrices in float32: with three products in tf32 unless torch may round to it."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


@cache
def missing() -> str | None:
    """Return why the kernels cannot run on this machine, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    return None if torch.cuda.is_available() or is_interpreted() else "torch sees no CUDA device"


@cache
def is_recent(device: torch.device) -> bool:
    """Return whether Triton supports a device."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= OLDEST


def supports(part: Part, dtype: torch.dtype) -> bool:
    """Return whether the kernels assemble a matrix in a dtype."""
    w, table = part.components, part.table
    if missing() or not (w.device.type == "cuda" or is_interpreted()) or not is_recent(w.device):
        return False
    is_typed = w.dtype in DTYPES and dtype in DTYPES and (table is None or table.dtype == w.dtype)
    is_short = part.out.n**2 <= MOST_BLOCKS and len(w) <= part.out.n
    fits = 0 < w.numel() * part.out.n**2 < 2**31  # offsets are 32-bit numbers
    return is_typed and is_short and fits


class Job(NamedTuple):
    """A weight, folded to [m, P, Q], and the tensors that a launch reads and writes, all contiguous."""

    part: Part
    w: Tensor  # [m, out elements, positions, in elements], see `zoo.kernels.assembly.fold`
    full: Tensor  # the matrix, or the gradient of the matrix, [out, positions, in]
    gw: Tensor | None
    g_table: Tensor | None

    @classmethod
    def of(cls, part: Part, dtype: torch.dtype, g: Tensor | None = None) -> "Job":
        """Fold a weight, and allocate what its launch writes: the matrix, or the gradients for a gradient ``g``."""
        last = is_channels_last(part.components)
        w = _aligned(fold(part.components.detach(), last))
        shape = part.out.channels, w.shape[2], part.inp.channels * (w.shape[3] // part.inp.elements)
        table = None if part.table is None else _aligned(part.table.detach())
        part = part._replace(table=table)
        if g is None:
            return cls(part, w, w.new_empty(shape, dtype=dtype), None, None)
        full = _aligned(fold(g.detach()[None], last)[0])
        if full.shape != shape or full.device != w.device:
            raise InputError(f"the gradient of a matrix must be {list(shape)} on {w.device}, got {list(full.shape)}")
        return cls(part, w, full, torch.empty_like(w), None if table is None else torch.empty_like(table))

    @property
    def sizes(self) -> tuple[int, ...]:
        """P, Q, PW, QW, SO and SI."""
        (_, elements, positions, columns), out, inp = self.w.shape, self.part.out, self.part.inp
        factor = columns // inp.elements
        rows = elements * positions, out.width * positions, out.size * positions
        return rows[0], columns, rows[1], inp.width * factor, rows[2], inp.size * factor

    @property
    def kind(self) -> tuple[Any, ...]:
        """Return what weights of one launch have in common."""
        part, columns = self.part, self.sizes[1::2]
        vector = next(v for v in (VECTOR, 4, 1) if not any(size % v for size in columns))
        padded = part.out.is_padded or part.inp.is_padded
        return part.literal, *self.w.shape[:1], part.out.n, self.w.dtype, self.full.dtype, vector, padded, self.w.device

    def matrix(self) -> Tensor:
        """Return the matrix in the memory format of the components."""
        return self._unfold(self.full[None])[0]

    def gradients(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the components and of the table."""
        assert self.gw is not None
        return self._unfold(self.gw), self.g_table

    def _unfold(self, tensor: Tensor) -> Tensor:
        w = self.part.components
        return unfold(tensor, w.shape[3:], is_channels_last(w))


def _aligned(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor at an address that is a multiple of 16, as the kernels assume."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return the jobs of each launch."""
    from zoo_gpu.source import SLOTS

    by_kind: dict[Any, list[Job]] = {}
    for job in jobs:
        by_kind.setdefault(job.kind, []).append(job)
    return [same[i : i + SLOTS] for same in by_kind.values() for i in range(0, len(same), SLOTS)]


@lru_cache(1024)
def plan_tiles(sizes: tuple[tuple[int, ...], ...], tile: tuple[int, int], device: torch.device) -> tuple[Tensor, ...]:
    """Return the sizes of the weights of a launch, weight and number of each tile, and the range of tiles of each weight."""
    counts = [-(-P // tile[0]) * -(-Q // tile[1]) for P, Q, *_ in sizes]
    tiles = [(which, number) for which, count in enumerate(counts) for number in range(count)]
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    ranges = [(end - count, end) for end, count in zip(ends, counts, strict=True)]
    with torch.inference_mode(False):
        meta, pairs, bounds = (torch.tensor(rows, dtype=torch.int32, device=device) for rows in (sizes, tiles, ranges))
    return meta, pairs, bounds


def launch_assembly(jobs: list[Job]) -> None:
    """Assemble the matrices of one launch."""
    outputs = [_addresses(jobs, lambda job: job.w), _addresses(jobs, lambda job: job.full)]
    if jobs[0].part.table is not None:
        outputs.append(_addresses(jobs, lambda job: job.part.table))
    _launch(jobs, 0, outputs, None)


def launch_gradients(jobs: list[Job]) -> None:
    """Compute the gradients of one launch."""
    addresses = [_addresses(jobs, lambda job: job.full), _addresses(jobs, lambda job: job.gw)]
    table = jobs[0].part.table
    if table is None:
        _launch(jobs, 1, addresses, jobs[0].w)
        return
    addresses += [_addresses(jobs, lambda job: job.w), _addresses(jobs, lambda job: job.part.table)]
    _, tiles, bounds = _plan(jobs)
    partial = table.new_empty(len(tiles), table.numel(), dtype=torch.float32)
    _launch(jobs, 1, addresses, partial)
    from zoo_gpu.source import sum_tiles

    size, types = table.numel(), _types(jobs[0])
    options = {"SIZE": size, "WIDTH": 1 << (size - 1).bit_length(), "IN": types["IN"]} | FUSED
    with on_device(table.device):
        sum_tiles[(len(jobs),)](bounds, partial, *_addresses(jobs, lambda job: job.g_table), **options)


def _launch(jobs: list[Job], backward: int, addresses: list[list[int]], partial: Tensor | None) -> None:
    from zoo_gpu.source import kernels

    literal, m, n, *_, vector, padded, device = jobs[0].kind
    meta, tiles, _ = _plan(jobs)
    rows, columns = INTERPRETED_TILE if is_interpreted() else TILE
    options = _types(jobs[0]) | {"V": 1 if is_interpreted() else vector, "PADDED": padded, "TP": rows, "TQ": columns} | FUSED
    buffers = [] if partial is None else [partial]
    with on_device(device):
        kernels(literal, m, n)[backward][(len(tiles),)](meta, tiles, *buffers, *chain(*addresses), **options)


def _plan(jobs: list[Job]) -> tuple[Tensor, ...]:
    tile = INTERPRETED_TILE if is_interpreted() else TILE
    return plan_tiles(tuple(job.sizes for job in jobs), tile, jobs[0].w.device)


def _types(job: Job) -> dict[str, Any]:
    import triton.language as tl

    names = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
    return {"IN": names[job.w.dtype], "OUT": names[job.full.dtype]}


def _addresses(jobs: list[Job], tensor: Callable[[Job], Tensor | None]) -> list[int]:
    """Return the addresses of contiguous tensors of the jobs, one for each slot."""
    from zoo_gpu.source import SLOTS

    tensors = [found for job in jobs if (found := tensor(job)) is not None]
    device = jobs[0].w.device
    places = [t.data_ptr() for t in tensors]
    is_valid = all(t.is_contiguous() and t.device == device for t in tensors) and not any(at % ALIGNMENT for at in places)
    if len(tensors) != len(jobs) or not is_valid:
        raise InputError(f"the tensors of a launch must be contiguous, aligned to {ALIGNMENT} bytes and on {device}")
    return places + places[:1] * (SLOTS - len(places))


def on_device(device: torch.device) -> Any:
    """Return a context in which launches are on a device."""
    return torch.cuda.device(device if device.type == "cuda" else -1)
