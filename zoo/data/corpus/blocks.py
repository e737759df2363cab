"""Blocks of a corpus: where they start, in which order they come, and the batches made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from zoo.data.corpus.token_file import Numbers
from zoo.data.loader import Array, generator
from zoo.data.text.tokens import PAD

Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Blocks(Dataset[Batch]):
    """Make batches of blocks; a block is known by the place of its first token.

    Attributes:
        tokens: The corpus, [N].
        length: Tokens of a block.
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
        """Make the batch of the blocks that start at these places.

        Returns:
            Tokens [B, length]; their targets, the tokens one further on, [B, length], 0 in both where the corpus has ended; the
            characters and bytes that the targets of each row stand for [B, 2]; all int64.
        """
        places = np.asarray(starts)[:, None] + np.arange(self.length + 1)
        rows = self.tokens[np.minimum(places, len(self))].astype(np.int64)
        rows[places > len(self)] = PAD
        targets = rows[:, 1:]
        tokens = np.where(targets == PAD, PAD, rows[:, :-1])
        sizes = self.extents[targets].sum(axis=1)
        return torch.from_numpy(tokens), torch.from_numpy(targets.copy()), torch.from_numpy(sizes)


def shuffled(steps: int, length: int, seed: int, epoch: int) -> Array:
    """Return the places of the blocks of one epoch in random order; the grid that they lie on is shifted at random.

    Their number is the same in every epoch: at most two blocks' worth of tokens at the ends is left out, every time others.

    Args:
        steps: Tokens that have a token after them.
        length: Tokens of a block, at most `steps`.
        seed: Decides, together with the epoch.
        epoch: The epoch.
    """
    draws = generator(seed, epoch)
    count = max(1, (steps - length + 1) // length)
    shift = int(torch.randint(min(length, steps - count * length + 1), (), generator=draws))
    return (torch.randperm(count, generator=draws) * length + shift).numpy()


def in_order(steps: int, length: int) -> Array:
    """Return the places of the blocks that hold all tokens, the last one perhaps in part."""
    return np.arange(0, steps, length)


def streams(steps: int, length: int, rows: int, *, whole: bool) -> tuple[Array, int]:
    """Cut a corpus into streams of equal length, to be read side by side.

    Args:
        steps: Tokens that have a token after them.
        length: Tokens of a segment, at most `steps`.
        rows: Streams at most; a small corpus has fewer.
        whole: Whether what does not fill the last segments is left out; else the last stream is the shorter one.

    Returns:
        The places of the first segment of every stream, then of the second, and so on, [segments * streams]; and how many
        streams there are.

    Example:
        >>> places, rows = streams(11, 2, 2, whole=True)
        >>> places.reshape(-1, rows)
        array([[0, 4],
               [2, 6]])
    """
    rows = min(rows, steps // length)
    segments = steps // rows // length if whole else -(-steps // (rows * length))
    rows = rows if whole else -(-steps // (segments * length))
    places = np.arange(segments)[:, None] + np.arange(rows) * segments
    return places.ravel() * length, rows
