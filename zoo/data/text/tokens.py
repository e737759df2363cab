"""Sequences of token numbers in one flat array, and batches that put texts of similar length together."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data import cache
from zoo.data.loader import Array, BatchDataset, generator

Ints = npt.NDArray[np.int32]

PAD, UNKNOWN, BEGIN, END = range(4)
"""Token numbers that mean the same for every tokenizer; the last two only where texts are to be generated."""

RULE = "1"  # number of the way in which texts become tokens; a new one makes new files in the cache


class Tokens(Sequence[Ints]):
    """Sequences of token numbers: as cheap to keep and to send to a worker process as two arrays.

    Attributes:
        flat: All of them, one after the other, int32.
        starts: Where each sequence starts, [N].
        stops: Where each sequence ends, [N].

    Example:
        >>> tokens = Tokens.of([[4, 2, 7], [5]])
        >>> tokens.padded([1, 0])
        tensor([[5, 0, 0],
                [4, 2, 7]])
    """

    def __init__(self, flat: Any, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> None:
        self.flat, self.starts, self.stops = flat, starts, stops

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int] | Ints]) -> Self:
        """Hold these sequences."""
        parts = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        return cls.flattened(np.concatenate([np.empty(0, np.int32), *parts]), [*map(len, parts)])

    @classmethod
    def flattened(cls, flat: Any, lengths: npt.ArrayLike) -> Self:
        """Hold sequences that lie one after the other, of these lengths."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        return cls(flat, offsets[:-1], offsets[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return self.flat[self.starts[index] : self.stops[index]]

    @property
    def lengths(self) -> Ints:
        """Number of tokens of every sequence, int32 [N]."""
        return (self.stops - self.starts).astype(np.int32)

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Return the sequences of these numbers."""
        return type(self)(self.flat, self.starts[rows], self.stops[rows])

    def padded(self, rows: Sequence[int] | None = None) -> Tensor:
        """Return these rows (all by default) side by side, int64 [B, longest of them], with 0 behind the shorter ones."""
        chosen = [self[row] for row in (range(len(self)) if rows is None else rows)]
        batch = np.full((len(chosen), max(map(len, chosen), default=0)), PAD, dtype=np.int64)
        for line, sequence in zip(batch, chosen, strict=True):
            line[: len(sequence)] = sequence
        return torch.from_numpy(batch)


def tokenised(parts: Iterable[Tokens], *key: str) -> Tokens:
    """Keep tokens that come some at a time: a few in memory, many in a mapped file of the cache, made once, named by `key`."""
    path = cache.folder("tokens") / f"{hashlib.sha256(chr(0).join((RULE, *key)).encode()).hexdigest()}.text"
    sizes = path.with_suffix(".lengths")
    if path.exists() and sizes.exists():
        return Tokens.flattened(cache.MappedArray(path, "<i4"), np.fromfile(sizes, np.int32))
    lengths = [np.empty(0, np.int32)]

    def flats() -> Iterator[Ints]:
        for part in parts:
            lengths.append(part.lengths)
            yield part.flat

    flat = cache.concatenated(flats(), path, "<i4")
    if isinstance(flat, cache.MappedArray):
        with cache.written(sizes) as file:
            file.write(np.concatenate(lengths).tobytes())
    return Tokens.flattened(flat, np.concatenate(lengths))


Inputs = Tensor | tuple[Tensor, Tensor]
Batch = tuple[Inputs, Tensor] | tuple[Inputs, Tensor, Tensor]

POOL = 50  # batches in a pool: enough for neighbours of nearly one length, few enough to leave the order random


@dataclass(frozen=True, eq=False)
class TextDataset(BatchDataset[Batch]):
    """Make batches of a split, each padded to its own longest text.

    Attributes:
        tokens: One column of token numbers, or two.
        labels: Class numbers, integers [N].
        groups: Question numbers, integers [N]; for ranking only.
    """

    tokens: tuple[Tokens, ...]
    labels: Array
    groups: Array | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> Array:
        """Tokens of the longer text of every row, int32 [N]."""
        longest: Array = np.max([column.lengths for column in self.tokens], axis=0)
        return longest

    def __getitems__(self, rows: list[int]) -> Batch:
        """Return tokens int64 [B, L], or a pair of such; labels int64 [B]; for a ranking also question numbers int64 [B]."""
        first, *second = (column.padded(rows) for column in self.tokens)
        inputs = (first, second[0]) if second else first
        labels = torch.from_numpy(self.labels[rows].astype(np.int64))
        return (
            (inputs, labels) if self.groups is None else (inputs, labels, torch.from_numpy(self.groups[rows].astype(np.int64)))
        )


def bucketed(lengths: Sequence[int] | Array, batch_size: int, seed: int, epoch: int) -> Tensor:
    """Return the rows of an epoch, int32 [N], in an order in which each run of `batch_size` rows has similar lengths.

    The rows are shuffled and cut into pools; each pool is sorted by length and cut into batches, and the batches are shuffled.
    Rows that fill no batch are drawn at random and come last. Seed and epoch alone decide the order.
    """
    sizes = torch.from_numpy(np.asarray(lengths, dtype=np.int32))
    draws = generator(seed, epoch)
    order = torch.randperm(len(sizes), generator=draws, dtype=torch.int32)
    full = order[: len(order) - len(order) % batch_size]
    for pool in full.split(POOL * batch_size):
        pool.copy_(pool[sizes[pool].argsort(stable=True)])
    batches = full.reshape(-1, batch_size)
    shuffled = torch.randperm(len(batches), generator=draws, dtype=torch.int32)
    return torch.cat([batches[shuffled].flatten(), order[len(full) :]])


class LengthBatches(Sequence[list[int]]):
    """The rows of every batch of an epoch; each row comes once, beside rows of its length or nearly so.

    Rows are sorted by length, those of one length shuffled, and cut into batches of `batch_size` rows, or of at most
    `batch_tokens` (rows times the longest), and the batches are shuffled. The cuts depend on the lengths alone, so there are as
    many batches in every epoch. Seed and epoch alone decide the order.
    """

    def __init__(
        self,
        lengths: Sequence[int] | Array,
        batch_size: int = 1,
        batch_tokens: int | None = None,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        sizes = torch.from_numpy(np.asarray(lengths, dtype=np.int32))
        draws = generator(seed, epoch)
        order = torch.randperm(len(sizes), generator=draws, dtype=torch.int32)
        self._rows = order[sizes[order].argsort(stable=True)]
        ascending = sizes.sort().values.numpy()
        self._ends = _cuts(len(sizes), batch_size) if batch_tokens is None else _within(ascending, batch_tokens)
        self._order = torch.randperm(len(self._ends) - 1, generator=draws, dtype=torch.int32)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: Any) -> Any:
        """Return the rows of one batch, or, of a slice, a sequence of such."""
        if isinstance(index, slice):
            batches = type(self).__new__(type(self))
            batches._rows, batches._ends, batches._order = (
                self._rows,
                self._ends,
                self._order[index.start : index.stop][:: index.step or 1],
            )
            return batches
        batch = int(self._order[index])
        return self._rows[self._ends[batch] : self._ends[batch + 1]].tolist()

    def __iter__(self) -> Iterator[list[int]]:
        return (self[index] for index in range(len(self)))


def _cuts(length: int, batch_size: int) -> Array:
    return np.append(np.arange(0, length, batch_size), length)


def _within(ascending: Array, budget: int) -> Array:
    """Cut sorted lengths into runs of which the number times the last, the longest, is within the budget."""
    ends = [0]
    while (start := ends[-1]) < len(ascending):
        low, high = start + 1, len(ascending)  # the end of the run lies between
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if (middle - start) * int(ascending[middle - 1]) <= budget else (low, middle - 1)
        ends.append(low)
    return np.array(ends)
