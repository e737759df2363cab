"""Batches of pairs of similar length, of so many pairs or so many tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from zoo.data.loader import Array, generator


class LengthBatches(Sampler[list[int]]):
    """Yield the rows of every batch; each row comes once per epoch, beside rows of its length or nearly so.

    Rows are sorted by length, those of one length shuffled, and cut into batches, and the batches are shuffled. The cuts depend
    on the lengths alone, so there are as many batches in every epoch. Seed and epoch alone decide the order; the global RNG
    is never touched. Lightning calls `set_epoch` before every epoch, a resumed run included; a plain loop moves on by itself.

    Args:
        lengths: Tokens of the longer side of every row.
        batch_size: Rows of a batch, unless there is a budget.
        batch_tokens: Tokens of a batch at most, padding included: rows times the longest side. A longer row stands
            alone.
        seed: Decides the orders.

    Example:
        >>> sorted(map(sorted, LengthBatches([9, 1, 8, 2, 3], batch_size=2)))
        [[0], [1, 3], [2, 4]]
        >>> sorted(map(sorted, LengthBatches([9, 1, 8, 2, 3], batch_tokens=9)))
        [[0], [1, 3, 4], [2]]
    """

    def __init__(
        self, lengths: Sequence[int] | Array, batch_size: int = 1, batch_tokens: int | None = None, seed: int = 0
    ) -> None:
        self.lengths = torch.from_numpy(np.array(lengths, dtype=np.int64))
        self.seed = seed
        self.epoch = 0
        if batch_tokens is None:
            self.sizes = [*map(len, torch.arange(len(self.lengths)).split(batch_size))] if len(self.lengths) else []
        else:
            self.sizes = _within(self.lengths.sort().values, batch_tokens)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[list[int]]:
        epoch, self.epoch = self.epoch, self.epoch + 1  # at the first batch: with workers, a loader asks for two iterators
        draws = generator(self.seed, epoch)
        order = torch.randperm(len(self.lengths), generator=draws)
        batches = order[self.lengths[order].argsort(stable=True)].split(self.sizes)
        for place in torch.randperm(len(batches), generator=draws).tolist():
            yield batches[place].tolist()

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the one that the next pass shuffles for."""
        self.epoch = epoch


def _within(ascending: Tensor, budget: int) -> list[int]:
    """Cut sorted lengths into runs of which the number times the last, the longest, is within the budget."""
    sizes: list[int] = []
    size = 0
    for length in ascending.tolist():
        if size and (size + 1) * length > budget:
            sizes.append(size)
            size = 0
        size += 1
    return [*sizes, size] if size else sizes
