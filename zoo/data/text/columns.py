"""Columns of texts in Arrow arrays, in memory or in a mapped file of the user's cache."""

import hashlib
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from zoo.data import cache

Ints = npt.NDArray[np.int32]

CHUNK = 10_000  # rows of a record batch


@dataclass(frozen=True, eq=False)
class Store:
    """Record batches of texts, in memory or in a mapped file, which a worker process maps again instead of getting a copy."""

    batches: Sequence[Any]
    mapped: mmap.mmap | None = None
    path: Path | None = None
    starts: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", np.cumsum([0, *(batch.num_rows for batch in self.batches)], dtype=np.int64))

    @classmethod
    def opened(cls, path: Path) -> Self:
        """Map a file of record batches."""
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
        return cls([reader.get_batch(i) for i in range(reader.num_record_batches)], mapped, path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Store, (list(self.batches),)) if self.path is None else (Store.opened, (self.path,))

    def take(self, name: str, rows: npt.NDArray[Any]) -> Any:
        """Return the texts of these rows as one Arrow array."""
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        owners = np.unique(owner)
        if len(owners) == 1:
            return self.batches[owners[0]].column(name).take(pa.array(rows - self.starts[owners[0]]))
        parts = [
            self.batches[owner_index].column(name).take(pa.array(rows[owner == owner_index] - self.starts[owner_index]))
            for owner_index in owners
        ]
        order = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))

    def forget(self) -> None:
        """Let the system have the memory back that pages of the mapped file took; they are read again when they are needed."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


class Column(Sequence[str]):
    """One text of every row (of `rows`, in their order; all by default), read from a store when it is asked for."""

    def __init__(self, store: Store, name: str, rows: Ints | None = None) -> None:
        self.store, self.name, self.rows = store, name, rows

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """Keep texts in memory; a column stays as it is."""
        if isinstance(texts, cls):
            return texts
        return cls(Store([pa.record_batch({"text": pa.array(texts, pa.string())})]), "text")

    def __len__(self) -> int:
        return int(self.store.starts[-1]) if self.rows is None else len(self.rows)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(batch.to_pylist() for batch in self.batches())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        row = range(len(self))[index]
        return self.store.take(self.name, np.array([row if self.rows is None else self.rows[row]]))[0].as_py()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def take(self, index: npt.NDArray[Any]) -> Self:
        """Return the texts at these places."""
        return type(self)(self.store, self.name, np.asarray(index if self.rows is None else self.rows[index], dtype=np.int32))

    def batches(self) -> Iterator[Any]:
        """Yield the texts in order, as Arrow arrays of `CHUNK` rows at most."""
        if self.rows is None:
            yield from (batch.column(self.name) for batch in self.store.batches)
        else:
            for start in range(0, len(self.rows), CHUNK):
                yield self.store.take(self.name, self.rows[start : start + CHUNK])
                self.store.forget()
        self.store.forget()


def digest_column(sha: Any, split: str, count: int, batches: Callable[[], Iterator[Any]]) -> None:
    """Add to a digest the name of a split, the number of texts of one of its columns, their lengths, and the texts."""
    sha.update(f"{split} {count}".encode())
    for texts in batches():
        sha.update(np.diff(_offsets(texts)).astype("<i8").tobytes())
    for texts in batches():
        if len(texts) and texts.buffers()[2] is not None:
            offsets = _offsets(texts)
            sha.update(memoryview(texts.buffers()[2])[offsets[0] : offsets[-1]])


def _offsets(texts: Any) -> Ints:
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]


def stored(batches: Iterator[Any], key: Callable[[], str]) -> Store:
    """Keep record batches: a few in memory, many in a mapped file of the user's cache, made once and named `key()`."""
    first: list[Any] = []
    size = 0
    for batch in batches:
        first.append(batch)
        size += batch.nbytes
        if size > cache.SMALL:
            break
    else:
        return Store(first)
    path = cache.folder("tables") / f"{key()}.arrow"
    if not path.exists():
        with cache.written(path) as file, pa.ipc.new_file(file, first[0].schema) as writer:
            for batch in chain(first, batches):
                writer.write_batch(batch)
    first.clear()
    pa.default_memory_pool().release_unused()
    return Store.opened(path)


def file_key(path: Path, *rest: object) -> str:
    """Return the digest of a file's content, and of how it is read."""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(repr((content, *rest)).encode()).hexdigest()
