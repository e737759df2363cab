"""Many sequences of token numbers in one flat array, in memory or in a mapped file of the user's cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.text.columns import SMALL, Ints, cache, written

PAD, UNKNOWN, BEGIN, END = range(4)
"""Token numbers that mean the same for every tokenizer; the last two only where texts are to be generated."""

RULE = "1"
"""Number of the way in which texts become tokens; a new one makes new files in the cache."""


class Tokens(Sequence[Ints]):
    """Hold sequences of token numbers: as cheap to keep and to send to a worker process as two arrays.

    Args:
        sequences: Token numbers of every text.

    Attributes:
        flat: All of them, one after the other, int32.
        starts: Where each sequence starts, [N].
        stops: Where each sequence ends, [N].

    Example:
        >>> tokens = Tokens([[4, 2, 7], [5]])
        >>> tokens.padded([1, 0])
        tensor([[5, 0, 0],
                [4, 2, 7]])
    """

    def __init__(self, sequences: Iterable[Sequence[int] | Ints]) -> None:
        parts = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
        flat = np.concatenate([np.empty(0, np.int32), *parts])
        self._set(flat, np.array([*map(len, parts)], dtype=np.int32))

    @classmethod
    def flattened(cls, flat: Ints, lengths: npt.NDArray[Any]) -> Tokens:
        """Hold sequences that lie one after the other, of these lengths."""
        made = cls.__new__(cls)
        made._set(flat, lengths)
        return made

    def _set(self, flat: Ints, lengths: npt.NDArray[Any], path: Path | None = None) -> None:
        self.flat, self.path = flat, path
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        self.starts, self.stops = offsets[:-1], offsets[1:]

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Ints: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ints]: ...
    def __getitem__(self, index: int | slice) -> Ints | list[Ints]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return np.asarray(self.flat[self.starts[row] : self.stops[row]])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "flat": None if self.path is not None else self.flat}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        if self.path is not None:  # a worker process maps the file again instead of getting a copy
            self.flat = np.memmap(self.path, np.int32, "r")

    @property
    def lengths(self) -> Ints:
        """Number of tokens of every sequence, int32 [N]."""
        return np.subtract(self.stops, self.starts, dtype=np.int32, casting="unsafe")

    def take(self, rows: npt.NDArray[Any]) -> Tokens:
        """Return the sequences of these numbers."""
        made = type(self).__new__(type(self))
        made.flat, made.path, made.starts, made.stops = self.flat, self.path, self.starts[rows], self.stops[rows]
        return made

    def padded(self, rows: Sequence[int] | None = None) -> Tensor:
        """Return these rows (all by default) side by side, int64 [B, longest of them], with 0 behind the shorter ones."""
        chosen = [self[row] for row in (range(len(self)) if rows is None else rows)]
        batch = np.full((len(chosen), max(map(len, chosen), default=0)), PAD, dtype=np.int64)
        for line, sequence in zip(batch, chosen, strict=True):
            line[: len(sequence)] = sequence
        return torch.from_numpy(batch)


def tokenised(parts: Iterable[Tokens], *key: str) -> Tokens:
    """Keep tokens that come some at a time: a few in memory, many in a mapped file of the cache, made once, named by `key`."""
    path = cache("tokens") / f"{hashlib.sha256(chr(0).join((RULE, *key)).encode()).hexdigest()}.text"
    if path.exists() and path.with_suffix(".lengths").exists():
        return _mapped(path)
    found: list[Tokens] = []
    size, parts = 0, iter(parts)
    for part in parts:
        found.append(part)
        size += part.flat.nbytes
        if size > SMALL:
            break
    else:
        lengths = [part.lengths for part in found]
        return Tokens.flattened(_joined(part.flat for part in found), _joined(lengths))
    counts = []
    with written(path) as file:
        for part in chain(found, parts):
            file.write(part.flat.tobytes())
            counts.append(part.lengths)
    with written(path.with_suffix(".lengths")) as file:
        file.write(_joined(counts).tobytes())
    return _mapped(path)


def _mapped(path: Path) -> Tokens:
    made = Tokens.__new__(Tokens)
    made._set(np.memmap(path, np.int32, "r"), np.fromfile(path.with_suffix(".lengths"), np.int32), path)
    return made


def _joined(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int32), *arrays])
