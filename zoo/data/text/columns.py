"""Columns of texts in Arrow arrays, in memory or in a mapped file of the user's cache."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from zoo.errors import InputError

Ints = npt.NDArray[np.int32]

CHUNK = 10_000
"""Rows of a record batch."""

SMALL = 2**23
"""Bytes up to which a table, or its tokens, stay in memory."""


@dataclass(frozen=True, eq=False)
class Store:
    """Record batches of texts.

    Attributes:
        batches: The rows; in the cached case their memory is that of the mapped file.
        mapped: The mapped file, if there is one.
    """

    batches: Sequence[Any]
    mapped: mmap.mmap | None = None
    starts: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.cumsum([0, *(batch.num_rows for batch in self.batches)], dtype=np.int64))

    def take(self, name: str, rows: npt.NDArray[Any]) -> Any:
        """Return the texts of these rows as one Arrow array."""
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        owners = np.unique(owner)
        if len(owners) == 1:
            return self.batches[owners[0]].column(name).take(pa.array(rows - self.starts[owners[0]]))
        parts = [self.batches[one].column(name).take(pa.array(rows[owner == one] - self.starts[one])) for one in owners]
        order = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))

    def forget(self) -> None:
        """Let the system have the memory back that pages of the mapped file took; they are read again when they are needed."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


class Column(Sequence[str]):
    """One text of every row, read from Arrow arrays when it is asked for.

    Args:
        store: Where the texts are.
        name: The column of the store.
        rows: The rows that are meant, in their order; all by default.

    Example:
        >>> column = Column.of(["a", "b", "c"])
        >>> column[1], list(column.take(np.array([2, 0])))
        ('b', ['c', 'a'])
    """

    def __init__(self, store: Store, name: str, rows: Ints | None = None) -> None:
        self.store, self.name, self.rows = store, name, rows

    @classmethod
    def of(cls, texts: Sequence[str]) -> Column:
        """Keep texts in memory; a column stays as it is."""
        if isinstance(texts, cls):
            return texts
        return cls(Store([pa.record_batch({"text": pa.array(texts, pa.string())})]), "text")

    def __len__(self) -> int:
        return int(self.store.starts[-1]) if self.rows is None else len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(batch.to_pylist() for batch in self.batches())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        text: str = self.store.take(self.name, np.array([row if self.rows is None else self.rows[row]]))[0].as_py()
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def take(self, index: npt.NDArray[Any]) -> Column:
        """Return the texts at these places."""
        return Column(self.store, self.name, np.asarray(index if self.rows is None else self.rows[index], dtype=np.int32))

    def batches(self) -> Iterator[Any]:
        """Yield the texts in order, as Arrow arrays of `CHUNK` rows at most."""
        if self.rows is None:
            yield from (batch.column(self.name) for batch in self.store.batches)
        else:
            for start in range(0, len(self.rows), CHUNK):
                yield self.store.take(self.name, self.rows[start : start + CHUNK])
                self.store.forget()
        self.store.forget()


def byte_lengths(texts: Any) -> npt.NDArray[np.int64]:
    """Return the bytes of every text of an Arrow array, as UTF-8."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths: npt.NDArray[np.int64] = np.diff(offsets).astype(np.int64)
    return lengths


def digest_column(sha: Any, split: str, count: int, batches: Callable[[], Iterator[Any]]) -> None:
    """Add to a digest the name of a split, the number of texts of one of its columns, their lengths, and the texts."""
    sha.update(f"{split} {count}".encode())
    for texts in batches():
        sha.update(byte_lengths(texts).astype("<i8").tobytes())
    for texts in batches():
        if len(texts) and texts.buffers()[2] is not None:
            offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
            sha.update(memoryview(texts.buffers()[2])[offsets[0] : offsets[-1]])


def stored(batches: Iterator[Any], key: Callable[[], str]) -> Store:
    """Keep record batches: a few in memory, many in a mapped file of the user's cache, made once and named `key()`."""
    first: list[Any] = []
    size = 0
    for batch in batches:
        first.append(batch)
        size += batch.nbytes
        if size > SMALL:
            break
    else:
        return Store(first)
    path = cache("tables") / f"{key()}.arrow"
    if not path.exists():
        with written(path) as file, pa.ipc.new_file(file, first[0].schema) as writer:
            for batch in chain(first, batches):
                writer.write_batch(batch)
    first.clear()
    pa.default_memory_pool().release_unused()
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
    return Store([reader.get_batch(i) for i in range(reader.num_record_batches)], mapped)


def file_key(path: Path, *rest: object) -> str:
    """Return the digest of a file's content, and of how it is read."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(repr((content, *rest)).encode()).hexdigest()


def cache(folder: str) -> Path:
    """Return a folder of the user's cache, below $XDG_CACHE_HOME or ~/.cache; its files may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "hypercomplex-zoo" / folder


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when it is whole, and else leaves nothing behind.

    Raises:
        InputError: It cannot be written.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or type(error).__name__
        raise InputError(
            f"{path.parent}: cannot keep large data there ({reason}); make room, or let XDG_CACHE_HOME name another folder"
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
