"""Batches of texts, and the order that puts texts of similar length into one batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoo.data.loader import Array, BatchDataset, generator
from zoo.data.text.tokens import Tokens

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
