"""Blocks of a corpus: where they start, in which order they come, and the batches made of them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from zoo.data.corpus.encoding import Numbers
from zoo.data.loader import Array, generator
from zoo.data.text.tokens import PAD

Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Blocks(Dataset[Batch]):
    """Make batches of blocks of `length` tokens; a block is known by the place of its first token.

    Attributes:
        tokens: The corpus, [N].
        extents: Characters and bytes of every token, [V, 2].
    """

    tokens: Numbers
    length: int
    extents: Array

    def __len__(self) -> int:
        return len(self.tokens) - 1

    def __getitem__(self, start: int) -> Batch:
        return self.__getitems__([start])

    def __getitems__(self, starts: list[int]) -> Batch:
        """Return tokens [B, length], what follows each [B, length] and its characters and bytes [B, 2]; 0 beyond the end."""
        places = np.asarray(starts)[:, None] + np.arange(self.length + 1)
        rows = self.tokens[np.minimum(places, len(self))].astype(np.int64)
        rows[places > len(self)] = PAD
        targets = rows[:, 1:]
        tokens = np.where(targets == PAD, PAD, rows[:, :-1])
        sizes = self.extents[targets].sum(axis=1)
        return torch.from_numpy(tokens), torch.from_numpy(targets.copy()), torch.from_numpy(sizes)


def shuffled(steps: int, length: int, seed: int, epoch: int) -> Array:
    """Return the places of the blocks of an epoch in random order, on a grid shifted at random: as many in every epoch."""
    draws = generator(seed, epoch)
    count = max(1, (steps - length + 1) // length)
    shift = int(torch.randint(min(length, steps - count * length + 1), (), generator=draws))
    return (torch.randperm(count, generator=draws) * length + shift).numpy()


def in_order(steps: int, length: int) -> Array:
    """Return the places of the blocks that hold all tokens, the last one perhaps in part."""
    return np.arange(0, steps, length)


def streams(steps: int, length: int, rows: int, *, whole: bool) -> tuple[Array, int]:
    """Cut a corpus into at most `rows` streams of equal length, to be read side by side.

    With `whole` what does not fill the last segments is left out; else the last stream is the shorter one.

    Returns:
        The places of the first segment of every stream, of the second, and so on, [segments * streams]; how many streams.
    """
    rows = min(rows, steps // length)
    segments = steps // rows // length if whole else -(-steps // (rows * length))
    rows = rows if whole else -(-steps // (segments * length))
    places = np.arange(segments)[:, None] + np.arange(rows) * segments
    return places.ravel() * length, rows
