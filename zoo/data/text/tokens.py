"""Many sequences of token numbers in one flat array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int32]

PAD, UNKNOWN, BEGIN, END = range(4)
"""Token numbers that mean the same for every tokenizer; the last two only where texts are to be written."""


class Tokens(Sequence[Ints]):
    """Hold sequences of token numbers: as cheap to keep and to send to a worker process as two arrays.

    Args:
        sequences: Token numbers of every text.

    Attributes:
        flat: All of them, one after the other, int32.
        offsets: Where each sequence starts, and where the last one ends, int64 [N + 1].

    Example:
        >>> tokens = Tokens([[4, 2, 7], [5]])
        >>> tokens.padded([1, 0])
        tensor([[5, 0, 0],
                [4, 2, 7]])
    """

    def __init__(self, sequences: Iterable[Sequence[int] | Ints]) -> None:
        parts = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        self.offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        self.flat = np.concatenate(parts) if parts else np.empty(0, np.int32)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Ints: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ints]: ...
    def __getitem__(self, index: int | slice) -> Ints | list[Ints]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of tokens of every sequence, [N]."""
        return np.diff(self.offsets)

    def padded(self, rows: Sequence[int] | None = None) -> Tensor:
        """Return these rows (all by default) side by side, int64 [B, longest of them], with 0 behind the shorter ones."""
        chosen = [self[row] for row in (range(len(self)) if rows is None else rows)]
        batch = np.full((len(chosen), max(map(len, chosen), default=0)), PAD, dtype=np.int64)
        for line, sequence in zip(batch, chosen, strict=True):
            line[: len(sequence)] = sequence
        return torch.from_numpy(batch)
