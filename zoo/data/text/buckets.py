"""Shuffling that puts texts of similar length into one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import Sampler

from zoo.data.loader import Array, generator

POOL = 50
"""Batches in a pool: enough for neighbours of nearly one length, few enough to leave the order random."""


class BucketSampler(Sampler[int]):
    """Yield every row once per epoch; each run of `batch_size` rows has similar lengths, so that little of a batch is padding.

    The rows are shuffled and cut into pools; each pool is sorted by length and cut into batches, and the batches are shuffled.
    Rows that fill no batch are drawn at random and come last. Seed and epoch alone decide the order; the global RNG is never
    touched. Lightning calls `set_epoch` before every epoch, a resumed run included; a plain loop moves on by itself.

    Args:
        lengths: Tokens of every row.
        batch_size: Rows of a batch.
        seed: Decides the orders.

    Example:
        >>> sampler = BucketSampler([9, 1, 8, 2, 5], batch_size=2, seed=0)
        >>> sorted(sampler)
        [0, 1, 2, 3, 4]
    """

    def __init__(self, lengths: Sequence[int] | Array, batch_size: int, seed: int) -> None:
        self.lengths = torch.from_numpy(np.array(lengths, dtype=np.int64))
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        draws = generator(self.seed, epoch)
        order = torch.randperm(len(self), generator=draws)
        whole, rest = order.split([len(self) - len(self) % self.batch_size, len(self) % self.batch_size])
        pools = [pool[self.lengths[pool].argsort(stable=True)] for pool in whole.split(POOL * self.batch_size)]
        batches = torch.cat(pools).reshape(-1, self.batch_size)
        batches = batches[torch.randperm(len(batches), generator=draws)]
        return iter([*batches.flatten().tolist(), *rest.tolist()])

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the one that the next pass shuffles for."""
        self.epoch = epoch
