"""Shuffling that depends on the seed and the epoch alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


class EpochSampler(Sampler[int]):
    """Yield every row once per epoch, in an order that seed and epoch decide; the global RNG is never touched.

    It yields `epoch * length + row`: the key carries the epoch into worker processes, which outlive an epoch, so that
    the augmentation too depends on seed, epoch and rows only, however many workers there are. Lightning calls
    `set_epoch` before every epoch, a resumed run included; a plain loop over the loader moves on by itself.

    Args:
        length: Rows of the data set.
        seed: Decides the orders.
    """

    def __init__(self, length: int, seed: int) -> None:
        self.length = length
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        order = torch.randperm(self.length, generator=generator(self.seed, epoch))
        return iter((order + epoch * self.length).tolist())

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the one that the next pass shuffles for."""
        self.epoch = epoch


def generator(*keys: int) -> torch.Generator:
    """Return a generator whose stream the keys decide."""
    seed = 0
    for key in keys:
        seed = (seed * 1_000_003 + key + 1) % (2**63)
    return torch.Generator().manual_seed(seed)
