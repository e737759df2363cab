"""Many sequences of token numbers in one flat array, in memory or in a mapped file of the user's cache."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data import cache
from zoo.data.text.columns import Ints

PAD, UNKNOWN, BEGIN, END = range(4)
"""Token numbers that mean the same for every tokenizer; the last two only where texts are to be generated."""

RULE = "1"  # number of the way in which texts become tokens; a new one makes new files in the cache


class Tokens(Sequence[Ints]):
    """Hold sequences of token numbers: as cheap to keep and to send to a worker process as two arrays.

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
        self._set(_joined(parts), [*map(len, parts)])

    @classmethod
    def flattened(cls, flat: Ints | cache.MappedArray, lengths: npt.ArrayLike) -> Self:
        """Hold sequences that lie one after the other, of these lengths."""
        tokens = cls.__new__(cls)
        tokens._set(flat, lengths)
        return tokens

    def _set(self, flat: Any, lengths: npt.ArrayLike) -> None:
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        self.flat, self.starts, self.stops = flat, offsets[:-1], offsets[1:]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return self.flat[self.starts[index] : self.stops[index]]

    @property
    def lengths(self) -> Ints:
        """Number of tokens of every sequence, int32 [N]."""
        lengths: Ints = np.subtract(self.stops, self.starts, dtype=np.int32, casting="unsafe")
        return lengths

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Return the sequences of these numbers."""
        tokens = type(self).__new__(type(self))
        tokens.flat, tokens.starts, tokens.stops = self.flat, self.starts[rows], self.stops[rows]
        return tokens

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
    if not (path.exists() and sizes.exists()):
        found: list[Tokens] = []
        size, parts = 0, iter(parts)
        for part in parts:
            found.append(part)
            size += part.flat.nbytes
            if size > cache.SMALL:
                break
        else:
            return Tokens.flattened(_joined(part.flat for part in found), _joined(part.lengths for part in found))
        lengths = []
        with cache.written(path) as file:
            for part in chain(found, parts):
                file.write(part.flat.tobytes())
                lengths.append(part.lengths)
        with cache.written(sizes) as file:
            file.write(_joined(lengths).tobytes())
    return Tokens.flattened(cache.MappedArray(path, "<i4"), np.fromfile(sizes, np.int32))


def _joined(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int32), *arrays])
