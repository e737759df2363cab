"""Tables of texts and labels that know the location of every row; texts are in memory or in a mapped file of the cache."""

import hashlib
import mmap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain
from operator import eq
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from zoo.data import cache
from zoo.data.options import DataError
from zoo.data.splits import Mask
from zoo.data.text.tokens import Ints

Rows = npt.NDArray[Any] | Sequence[int]

BATCH_ROWS = 10_000  # rows per record batch


class Store:
    """Record batches of texts, in memory or in a mapped file; pickling a mapped store sends only its path."""

    def __init__(self, batches: Sequence[Any], mapped: mmap.mmap | None = None, path: Path | None = None) -> None:
        self.batches, self.mapped, self.path = batches, mapped, path
        self.starts = np.cumsum([0, *(batch.num_rows for batch in batches)], dtype=np.int64)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Map a file of record batches."""
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
        return cls([reader.get_batch(i) for i in range(reader.num_record_batches)], mapped, path)

    @classmethod
    def cached(cls, batches: Iterator[Any], path: Path, *key: object) -> Self:
        """Store the record batches read from a file: in memory if small, else in a mapped file named by content and `key`."""
        first, is_complete = cache.take_small(batches)
        if is_complete:
            return cls(first)
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        cached = cache.folder("tables") / f"{hashlib.sha256(repr((content, *key)).encode()).hexdigest()}.arrow"
        if not cached.exists():
            with cache.write_file(cached) as stream, pa.ipc.new_file(stream, first[0].schema) as writer:
                for batch in chain(first, batches):
                    writer.write_batch(batch)
        first.clear()
        pa.default_memory_pool().release_unused()
        return cls.from_file(cached)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Store, (list(self.batches),)) if self.path is None else (Store.from_file, (self.path,))

    def take(self, name: str, rows: npt.NDArray[Any]) -> Any:
        """Return the texts of some rows as one Arrow array."""
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        parts = [
            self.batches[i].column(name).take(pa.array(rows[owner == i] - self.starts[i])) for i in np.unique(owner).tolist()
        ]
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.argsort(owner, kind="stable"), kind="stable")))

    def release(self) -> None:
        """Drop the pages of the mapped file from memory; they are read again on demand."""
        if self.mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapped.madvise(mmap.MADV_DONTNEED)


class Texts(Sequence[str]):
    """A sequence that equals any other sequence of the same texts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


class TextColumn(Texts):
    """A column of a store that is read on demand, with all rows or those of an index."""

    def __init__(self, store: Store, name: str, rows: Ints | None = None) -> None:
        self.store, self.name, self.rows = store, name, rows

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """Return a column of texts in memory; a `TextColumn` is returned unchanged."""
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

    def take(self, index: npt.NDArray[Any]) -> Self:
        """Return the column restricted to some rows."""
        return type(self)(self.store, self.name, np.asarray(index if self.rows is None else self.rows[index], dtype=np.int32))

    def batches(self) -> Iterator[Any]:
        """Yield the texts as Arrow arrays of at most `BATCH_ROWS` rows."""
        if self.rows is None:
            yield from (batch.column(self.name) for batch in self.store.batches)
        else:
            for start in range(0, len(self.rows), BATCH_ROWS):
                yield self.store.take(self.name, self.rows[start : start + BATCH_ROWS])
                self.store.release()
        self.store.release()


class Labels(Texts):
    """The label of every row, as a code (`codes`, int32 [N]) into `names`."""

    def __init__(self, codes: Ints, names: Sequence[str]) -> None:
        self.codes, self.names = codes, tuple(names)

    @classmethod
    def of(cls, parts: Iterable[Sequence[str]]) -> Self:
        """Encode consecutive parts of a column of labels, in order of first appearance."""
        known: dict[str, int] = {}
        codes = [np.fromiter((known.setdefault(label, len(known)) for label in part), np.int32, len(part)) for part in parts]
        return cls(np.concatenate([np.empty(0, np.int32), *codes]), tuple(known))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Any:
        return [self.names[code] for code in self.codes[index]] if isinstance(index, slice) else self.names[self.codes[index]]

    def unique(self) -> list[str]:
        """Return the labels that occur."""
        return [self.names[code] for code in np.flatnonzero(np.bincount(self.codes, minlength=len(self.names)))]

    def mask(self, known: Collection[str]) -> Mask:
        """Return which rows have one of these labels, [N]."""
        mask: Mask = np.array([name in known for name in self.names], dtype=np.bool_)[self.codes]
        return mask

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the labels under other names."""
        renamed = [names.get(name, name) for name in self.names]
        codes = {name: i for i, name in enumerate(dict.fromkeys(renamed))}
        return type(self)(np.array([codes[name] for name in renamed], dtype=np.int32)[self.codes], [*codes])

    def batches(self) -> Iterator[Any]:
        """Yield the labels as Arrow arrays of at most `BATCH_ROWS` rows."""
        names = pa.array(self.names, pa.string())
        return (names.take(pa.array(self.codes[start : start + BATCH_ROWS])) for start in range(0, len(self), BATCH_ROWS))


class Table:
    """Rows of one or two texts, with labels if they are to be classified.

    Texts are Arrow arrays. Beyond them, a row costs three numbers: its label, its line and its index.

    Args:
        texts: One column of texts, or two for pairs.
        labels: The label of every row, as written in the file.
        groups: The question of every row, if its answers are to be ranked.
        source: Name of the file or data set for error messages.
        lines: The line of every row in `source`, from 1.
        files: The files of the two columns, if each line of theirs is a text (parallel files).
        skipped: Number of broken rows that were skipped.

    Attributes:
        rows: The index of every row in `source`, from 0, if rows were removed; else None.

    Example:
        >>> table = Table((["good", "bad", "fine"],), ["1", "0", "1"], source="reviews")
        >>> table.take([2, 0]).location(0), list(table.take([2, 0]).labels)
        ('reviews, row 3', ['1', '1'])
    """

    def __init__(
        self,
        texts: Sequence[Sequence[str]],
        labels: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        source: str = "the data",
        lines: Rows | None = None,
        files: tuple[str, str] | None = None,
        skipped: int = 0,
    ) -> None:
        self.texts = tuple(map(TextColumn.of, texts))
        self.labels = labels if isinstance(labels, Labels) else Labels.of([] if labels is None else [labels])
        self.groups = None if groups is None else TextColumn.of(groups)
        self.source, self.lines, self.files, self.skipped = source, lines, files, skipped
        self.rows: Ints | None = None
        if len(self.texts) not in (1, 2):
            raise DataError(f"{source}: {len(self.texts)} columns of text; use one or two")
        for name, column in {"second texts": self.texts[-1], "labels": labels, "groups": groups, "lines": lines}.items():
            if column is not None and len(column) != len(self):
                raise DataError(f"{source}: {len(self)} texts but {len(column)} {name}; use one per row")

    def __len__(self) -> int:
        return len(self.texts[0])

    def location(self, row: int, side: int = 0) -> str:
        """Return where a row comes from: FILE:LINE (of parallel files, that of a side), or the source and the row number."""
        index = row if self.rows is None else int(self.rows[row])
        if self.files is not None:
            return f"{self.files[side]}:{index + 1}"
        return f"{self.source}, row {index + 1}" if self.lines is None else f"{self.source}:{self.lines[index]}"

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some attributes replaced."""
        copied = copy(self)
        copied.__dict__ |= changes
        return copied

    def take(self, index: Rows) -> Self:
        """Return some rows; they keep their locations."""
        index = np.asarray(index, dtype=np.int32)
        return self.changed(
            texts=tuple(column.take(index) for column in self.texts),
            labels=Labels(self.labels.codes[index], self.labels.names) if len(self.labels) else self.labels,
            groups=None if self.groups is None else self.groups.take(index),
            rows=index if self.rows is None else self.rows[index],
        )

    def where(self, keep: Mask) -> Self:
        """Return the rows of a mask."""
        return self if keep.all() else self.take(np.flatnonzero(keep))

    def blank(self) -> Mask:
        """Return which rows have an empty text, [N]."""
        return np.fromiter((not all(map(str.strip, texts)) for texts in zip(*self.texts, strict=True)), np.bool_, len(self))


def concat_tables(tables: Sequence[Table], source: str) -> Table:
    """Concatenate labelled tables."""
    if len(tables) == 1:
        return tables[0].changed(source=source)
    parts = zip(*((*table.texts, *([] if table.groups is None else [table.groups])) for table in tables), strict=True)
    stores = [Store([pa.record_batch({"text": batch}) for column in part for batch in column.batches()]) for part in parts]
    texts, width = [TextColumn(store, "text") for store in stores], len(tables[0].texts)
    labels = Labels.of(batch.to_pylist() for table in tables for batch in table.labels.batches())
    return Table(texts[:width], labels, next(iter(texts[width:]), None), source)


def table_digest(tables: Mapping[str, Table], classes: Sequence[str] | None = None) -> str:
    """Return the SHA-256 of split names and texts, and if there are classes of these, the labels and the groups."""
    sha = hashlib.sha256(b"" if classes is None else repr(tuple(classes)).encode())
    for name, table in sorted(tables.items()):
        columns: list[Any] = [*table.texts]
        if classes is not None:
            columns += [table.labels, table.groups or TextColumn.of([])]
        for column in columns:
            sha.update(f"{name} {len(column)}".encode())
            for texts in column.batches():
                sha.update(np.diff(_offsets(texts)).astype("<i8").tobytes())
            for texts in column.batches():
                if len(texts) and texts.buffers()[2] is not None:
                    offsets = _offsets(texts)
                    sha.update(memoryview(texts.buffers()[2])[offsets[0] : offsets[-1]])
    return sha.hexdigest()


def _offsets(texts: Any) -> Ints:
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
