"""Texts and token ids in flat arrays, and batches of texts of similar length."""

import mmap
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.loader import Array, BatchDataset, generator
from zoo.errors import InputError

Ints = npt.NDArray[np.int32]

PAD, UNKNOWN, BEGIN, END = range(4)
"""Special token ids of every tokenizer; the last two exist only if texts are to be generated."""


class Ragged(Sequence[Any]):
    """Sequences of different lengths in one flat array.

    `starts` [N] are the positions of the sequences in `flat`; by default they are adjacent.
    """

    def __init__(self, flat: Array, lengths: Sequence[int] | Array, starts: Array | None = None) -> None:
        self.flat, self.lengths = flat, np.asarray(lengths, dtype=np.int32)
        self.starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths if starts is None else starts

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        return self.flat[self.starts[index] : self.starts[index] + self.lengths[index]]

    def take(self, rows: Array) -> Self:
        """Return the sequences of some rows."""
        return type(self)(self.flat, self.lengths[rows], self.starts[rows])


class RaggedFile:
    """Write sequences to an unnamed temporary file, of which the system keeps in memory only what is used."""

    def __init__(self) -> None:
        self._lengths = array("i")
        with _naming_folder():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this object)

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):  # the disk is full, or the file could not be created
            self._file.close()

    def append(self, sequence: bytes | Array) -> None:
        """Write a sequence."""
        with _naming_folder():
            self._file.write(bytes(sequence))
        self._lengths.append(len(sequence))

    def mapped(self, dtype: str) -> tuple[Array, Array]:
        """Return all items as a read-only array that is mapped from the file, and the length of each sequence."""
        with _naming_folder():
            self._file.flush()
        is_empty = not any(self._lengths)
        content = b"" if is_empty else mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(content, dtype), np.array(self._lengths, np.int32)


@contextmanager
def _naming_folder() -> Iterator[None]:
    """Name the folder of temporary files in errors of the disk."""
    try:
        yield
    except OSError as error:
        text = f"cannot store texts in {tempfile.gettempdir()} ({error.strerror}): free space, or set TMPDIR to another folder"
        raise InputError(text, code="failed") from error


class Texts(Ragged):
    """Texts in one array of UTF-8 bytes, uint8.

    Example:
        >>> list(Texts.of(["good", "schlecht"]))
        ['good', 'schlecht']
    """

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Write texts to a temporary file and map it."""
        file = RaggedFile()
        for text in texts:
            file.append(text.encode())
        return cls(*file.mapped("u1"))

    def __getitem__(self, index: object) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        return str(super().__getitem__(index).data, "utf-8")


class Tokens(Ragged):
    """Token ids, int32.

    Example:
        >>> tokens = Tokens(np.array([4, 2, 7, 5], np.int32), [3, 1])
        >>> tokens.padded([1, 0])
        tensor([[5, 0, 0],
                [4, 2, 7]])
    """

    def padded(self, rows: Sequence[int] | None = None) -> Tensor:
        """Return some sequences (by default all) as int64 [B, longest], padded with 0 on the right."""
        chosen = [self[row] for row in (range(len(self)) if rows is None else rows)]
        batch = np.full((len(chosen), max(map(len, chosen), default=0)), PAD, dtype=np.int64)
        for line, sequence in zip(batch, chosen, strict=True):
            line[: len(sequence)] = sequence
        return torch.from_numpy(batch)


Inputs = Tensor | tuple[Tensor, Tensor]
Batch = tuple[Inputs, Tensor] | tuple[Inputs, Tensor, Tensor]

POOL = 50  # batches per pool: enough for batches of similar lengths, few enough for a random order


@dataclass(frozen=True, eq=False)
class TextDataset(BatchDataset[Batch]):
    """Make batches of one or two columns of token ids, class ids [N] and, for ranking, question ids [N]."""

    tokens: tuple[Tokens, ...]
    labels: Array
    groups: Array | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> Array:
        """Length of the longer text of every row, int32 [N]."""
        return np.asarray(np.max([column.lengths for column in self.tokens], axis=0))

    def __getitems__(self, rows: list[int]) -> Batch:
        """Return tokens int64 [B, L], or a pair of them; labels int64 [B]; for ranking also question ids int64 [B]."""
        columns = tuple(column.padded(rows) for column in self.tokens)
        inputs = columns if len(columns) == 2 else columns[0]
        labels = torch.from_numpy(self.labels[rows].astype(np.int64))
        if self.groups is None:
            return inputs, labels
        return inputs, labels, torch.from_numpy(self.groups[rows].astype(np.int64))


def bucketed(lengths: Sequence[int] | Array, batch_size: int, seed: int, epoch: int) -> Tensor:
    """Return the rows of an epoch, int32 [N], ordered such that each run of `batch_size` rows has similar lengths.

    The rows are shuffled and cut into pools, each pool is sorted by length and cut into batches, and the batches are shuffled.
    The random rows that do not fill a batch come last. The order depends on seed and epoch alone.
    """
    sizes = torch.from_numpy(np.asarray(lengths, dtype=np.int32))
    random = generator(seed, epoch)
    order = torch.randperm(len(sizes), generator=random, dtype=torch.int32)
    full = order[: len(order) - len(order) % batch_size]
    for pool in full.split(POOL * batch_size):
        pool.copy_(pool[sizes[pool].argsort(stable=True)])
    batches = full.reshape(-1, batch_size)
    shuffled = torch.randperm(len(batches), generator=random, dtype=torch.int32)
    return torch.cat([batches[shuffled].flatten(), order[len(full) :]])


class LengthBatches(Sequence[list[int]]):
    """The rows of every batch of an epoch: each row once, together with rows of similar length.

    Rows are sorted by length with ties shuffled, and cut into batches of `batch_size` rows, or of at most `batch_tokens` (rows
    times the longest), which are then shuffled. The cuts depend on the lengths alone, so every epoch has the same number of
    batches. The order depends on seed and epoch alone.
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
        random = generator(seed, epoch)
        order = torch.randperm(len(sizes), generator=random, dtype=torch.int32)
        self._rows = order[sizes[order].argsort(stable=True)]
        if batch_tokens is None:
            self._ends = np.append(np.arange(0, len(sizes), batch_size), len(sizes))
        else:
            self._ends = _cut_by_tokens(sizes.sort().values.numpy(), batch_tokens)
        self._order = torch.randperm(len(self._ends) - 1, generator=random, dtype=torch.int32)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: Any) -> Any:
        """Return the rows of one batch, or for a slice a sequence of batches."""
        if isinstance(index, slice):
            batches = copy(self)
            batches._order = self._order[index]
            return batches
        batch = int(self._order[index])
        return self._rows[self._ends[batch] : self._ends[batch + 1]].tolist()


def _cut_by_tokens(ascending: Array, budget: int) -> Array:
    """Cut sorted lengths into runs whose count times their longest is within the budget; return the cuts."""
    cuts = [0]
    while (start := cuts[-1]) < len(ascending):
        low, high = start + 1, len(ascending)  # the range of the next cut
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if (middle - start) * int(ascending[middle - 1]) <= budget else (low, middle - 1)
        cuts.append(low)
    return np.array(cuts)
