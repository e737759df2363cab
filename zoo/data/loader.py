"""Resumable data loaders whose row order depends on seed and epoch alone, divided among processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed
from torch.utils.data import DataLoader, Dataset, SequentialSampler, default_collate
from torch.utils.data.distributed import DistributedSampler

from zoo.errors import InputError

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Batch = TypeVar("Batch", covariant=True)

Keys = Any
"""Keys of a data set: rows (array, tensor or sequence of int), or the rows of whole batches (sequence of lists)."""

Order = Callable[[int], Keys]
"""Returns the keys of an epoch; all epochs have the same number."""

CHUNK = 2**16


class BatchDataset(Dataset[Batch]):
    """Base class of data sets that make whole batches, many times faster than row by row.

    A subclass defines `__len__` and `__getitems__`. Other map-style data sets are read row by row and collated.
    """

    def __getitems__(self, keys: list[int]) -> Batch:
        """Return the batch of these keys; a key is ``epoch * len(self) + row``."""
        raise NotImplementedError


class CollatedDataset(BatchDataset[Any]):
    """Make batches of a map-style data set with torch's `default_collate`."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, keys: list[int]) -> Any:
        rows = [key % len(self) for key in keys]
        return default_collate([self.data[row] for row in rows])


class TensorBatches(BatchDataset[Any]):
    """Make batches of the rows of tensors of equal length."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitems__(self, keys: list[int]) -> tuple[Tensor, ...]:
        rows = torch.tensor(keys) % len(self)
        return tuple(tensor[rows] for tensor in self.tensors)


def generator(*keys: int) -> torch.Generator:
    """Return a generator seeded by the keys."""
    seed = 0
    for key in keys:
        seed = (seed * 1_000_003 + key + 1) % (2**63)
    return torch.Generator().manual_seed(seed)


def shuffled(length: int, seed: int, epoch: int) -> Tensor:
    """Return `epoch * length + row` for every row in random order, [length].

    The key carries the epoch into persistent worker processes, so that augmentation depends on seed, epoch and rows only, not
    on the number of workers.
    """
    return torch.randperm(length, generator=generator(seed, epoch)) + epoch * length


def always(keys: Keys, epoch: int) -> Keys:
    """Return the same keys in every epoch."""
    return keys


def process_rank() -> tuple[int, int]:
    """Return the rank of this process and the world size."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


class EpochSampler(DistributedSampler[Any]):
    """Yield this process's share of the keys of consecutive epochs, optionally starting within an epoch.

    Rank r of R processes takes the keys r, r + R, r + 2 R ... Lightning calls `set_epoch` before every epoch, also in a resumed
    run, and does not replace a `DistributedSampler`; without it, each pass advances the epoch. Global random number generators
    are not used.

    Args:
        order: The keys of an epoch.
        even: Whether to drop keys at the end so that every process has the same number (training); otherwise each key is
            yielded once over all processes, and some have one more than others (validation and test).
        rank: Rank of this process, and ``world``, their number; by default those of `torch.distributed`.

    Example:
        >>> [list(EpochSampler(partial(always, range(5)), even=False, rank=rank, world=2)) for rank in (0, 1)]
        [[0, 2, 4], [1, 3]]
    """

    def __init__(self, order: Order, *, even: bool, rank: int | None = None, world: int | None = None) -> None:
        default_rank, default_world = process_rank()
        self.order, self.even = order, even
        self.rank = default_rank if rank is None else rank
        self.num_replicas = default_world if world is None else world
        self.epoch = 0
        self.skip = 0  # keys of this process to skip at the start of the next pass
        self._length = len(self._share(0))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1  # runs at the first key: with workers, a loader makes two iterators
        share, start = self._share(epoch), self.skip
        for first in range(start, len(share), CHUNK):
            chunk = share[first : first + CHUNK]
            yield from chunk.tolist() if hasattr(chunk, "tolist") else chunk

    def _share(self, epoch: int) -> Keys:
        keys = self.order(epoch)
        length = len(keys) - len(keys) % self.num_replicas if self.even else len(keys)
        return keys[:length][self.rank :: self.num_replicas]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self.epoch = epoch


class FixedSampler(EpochSampler, SequentialSampler):
    """Yield the keys of epoch 0 in every epoch, for `overfit_batches`; Lightning replaces other samplers by row numbers."""

    def __init__(self, sampler: EpochSampler) -> None:
        keys = sampler.order(0)
        super().__init__(partial(always, keys), even=sampler.even, rank=sampler.rank, world=sampler.num_replicas)


class ResumableLoader(DataLoader[Any]):
    """A loader that resumes within an epoch; Lightning saves its state in checkpoints.

    The state counts the batches yielded, not those prefetched by workers. It belongs to one epoch; passes over other epochs
    start at the beginning.
    """

    _epoch = 0  # of the current pass
    _yielded = 0
    _resumed: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # a generator starts late: after Lightning's `set_epoch`
        if (sampler := self._epochs) is not None:
            resumed, self._resumed = self._resumed, None
            self._epoch = sampler.epoch
            self._yielded = resumed[1] if resumed is not None and resumed[0] == self._epoch else 0
            sampler.skip = self._yielded * (self.batch_size or 1)
        for batch in super().__iter__():
            self._yielded += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its batches that were yielded."""
        epoch, yielded = self._resumed or (self._epoch, self._yielded)
        return {"epoch": epoch + 1, "batches": 0} if yielded == len(self) else {"epoch": epoch, "batches": yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume the next pass at the saved position."""
        self._resumed = state["epoch"], state["batches"]
        if self._epochs is not None:
            self._epochs.set_epoch(state["epoch"])

    @property
    def _epochs(self) -> EpochSampler | None:
        """The sampler, unless it was replaced."""
        return self.sampler if isinstance(self.sampler, EpochSampler) else None


def eval_sampler(keys: Sequence[object]) -> EpochSampler:
    """Return a sampler that yields each key once over all processes; raise `InputError` for fewer keys than processes."""
    # Lightning skips evaluation in a process without rows, and the others would wait forever for its metrics.
    sampler = EpochSampler(partial(always, keys), even=False)
    if 0 < len(keys) < sampler.num_replicas:
        message = f"{len(keys)} rows to evaluate in {sampler.num_replicas} processes; use fewer with --trainer.devices"
        raise InputError(message)
    return sampler


def check_order(in_order: bool, processes: int) -> None:
    """Raise `InputError` if rows in order, as networks with memory require, would be read by several processes."""
    if in_order and processes > 1:
        raise InputError("a network with memory reads its text in order, in one process; use --trainer.devices 1")
