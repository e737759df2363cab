"""Tables of texts, and of labels where there are any, each row with the location it came from."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from zoo.data.text.columns import CHUNK, Column, Ints, Store, digest_column
from zoo.errors import InputError

Rows = npt.NDArray[Any] | Sequence[int]


class Labels(Sequence[str]):
    """The label of every row, as a number (`codes`, int32 [N]) and the name it stands for."""

    def __init__(self, codes: Ints, names: Sequence[str]) -> None:
        self.codes, self.names = codes, tuple(names)

    @classmethod
    def of(cls, parts: Iterable[Sequence[str]]) -> Self:
        """Number labels, that come some at a time, in the order of their first appearance."""
        seen: dict[str, int] = {}
        codes = [np.fromiter((seen.setdefault(label, len(seen)) for label in part), np.int32, len(part)) for part in parts]
        return cls(np.concatenate([np.empty(0, np.int32), *codes]), tuple(seen))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Any:
        return [self.names[code] for code in self.codes[index]] if isinstance(index, slice) else self.names[self.codes[index]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def present(self) -> list[str]:
        """Return the labels that occur, each once."""
        return [self.names[code] for code in np.flatnonzero(np.bincount(self.codes, minlength=len(self.names)))]

    def mask(self, known: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return which rows have one of these labels, [N]."""
        mask: npt.NDArray[np.bool_] = np.array([name in known for name in self.names], dtype=np.bool_)[self.codes]
        return mask

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return other labels for the same rows."""
        shown = [names.get(name, name) for name in self.names]
        number = {name: i for i, name in enumerate(dict.fromkeys(shown))}
        return type(self)(np.array([number[name] for name in shown], dtype=np.int32)[self.codes], [*number])

    def batches(self) -> Iterator[Any]:
        """Yield the labels as Arrow arrays."""
        names = pa.array(self.names, pa.string())
        return (names.take(pa.array(self.codes[start : start + CHUNK])) for start in range(0, len(self), CHUNK))


class Table:
    """Rows of one text, or two, and of a label if they are to be classified.

    Texts stay in Arrow arrays; what grows with the rows beside them is a number each for the label, the line and the row.

    Args:
        texts: One column of texts, or two (pairs).
        labels: The label of every row, as it is written in the file.
        groups: The question that every row answers, if there are answers to be ranked.
        source: What an error message calls the origin: a file, a data set.
        lines: The line in `source` of every row of the file, from 1 on, if it is a file of lines.
        files: The files of the two columns, if a line of each is a text (parallel files).
        noun: What messages call a row of a source without lines.
        rows: The number in `source` of every row, from 0 on, if rows were taken out.
        skipped: Broken rows of the file that were left out.

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
        noun: str = "row",
        rows: Ints | None = None,
        skipped: int = 0,
    ) -> None:
        self.texts = tuple(map(Column.of, texts))
        self.labels = labels if isinstance(labels, Labels) else Labels.of([] if labels is None else [labels])
        self.groups = None if groups is None else Column.of(groups)
        self.source, self.lines, self.files, self.noun, self.rows = source, lines, files, noun, rows
        self.skipped = skipped
        if len(self.texts) not in (1, 2):
            raise InputError(f"{source}: {len(self.texts)} columns of text; a row has one text or two", code="data")
        if len(self.texts[-1]) != len(self):
            raise InputError(f"{source}: {len(self)} texts but {len(self.texts[-1])} second texts; one per row", code="data")
        for name, column in (("labels", labels), ("groups", groups), ("lines", lines if rows is None else None)):
            if column is not None and len(column) != len(self):
                raise InputError(f"{source}: {len(self)} texts but {len(column)} {name}; one per row", code="data")

    def __len__(self) -> int:
        return len(self.texts[0])

    def location(self, row: int, side: int = 0) -> str:
        """Name the place that a row (of parallel files, one side of it) comes from: FILE:LINE, or the source and the row."""
        number = row if self.rows is None else int(self.rows[row])
        if self.files is not None:
            return f"{self.files[side]}:{number + 1}"
        return f"{self.source}, {self.noun} {number + 1}" if self.lines is None else f"{self.source}:{self.lines[number]}"

    def changed(self, **changes: Any) -> Self:
        """Return the table with other values of some arguments."""
        copied = copy(self)
        copied.__dict__ |= changes
        return copied

    def take(self, index: Rows) -> Self:
        """Return the rows of these numbers; they keep their locations."""
        index = np.asarray(index, dtype=np.int32)
        labels = self.labels if not len(self.labels) else Labels(self.labels.codes[index], self.labels.names)
        return self.changed(
            texts=tuple(column.take(index) for column in self.texts),
            labels=labels,
            groups=None if self.groups is None else self.groups.take(index),
            rows=np.asarray(index if self.rows is None else self.rows[index], dtype=np.int32),
        )

    def where(self, keep: npt.NDArray[np.bool_]) -> Self:
        """Return the rows of a mask."""
        return self if keep.all() else self.take(np.flatnonzero(keep).astype(np.int32))

    def blank(self) -> npt.NDArray[np.bool_]:
        """Return which rows have an empty text, [N]."""
        is_blank = (not all(map(str.strip, texts)) for texts in zip(*self.texts, strict=True))
        return np.fromiter(is_blank, np.bool_, len(self))


def renumbered(codes: Ints) -> Ints:
    """Number codes anew in the order of their first appearance, int32 [N]."""
    seen: dict[int, int] = {}
    for start in range(0, len(codes), CHUNK):
        values, first = np.unique(codes[start : start + CHUNK], return_index=True)
        for code in values[np.argsort(first)].tolist():
            seen.setdefault(code, len(seen))
    to = np.zeros(max(seen, default=0) + 1, dtype=np.int32)
    to[list(seen)] = list(seen.values())
    return to[codes]


def joined(tables: Sequence[Table], source: str) -> Table:
    """Lay labelled tables end to end."""
    if len(tables) == 1:
        return tables[0].changed(source=source)
    parts = zip(*((*table.texts, *([] if table.groups is None else [table.groups])) for table in tables), strict=True)
    stores = [Store([pa.record_batch({"text": batch}) for column in part for batch in column.batches()]) for part in parts]
    texts, width = [Column(store, "text") for store in stores], len(tables[0].texts)
    labels = Labels.of(batch.to_pylist() for table in tables for batch in table.labels.batches())
    return Table(texts[:width], labels, next(iter(texts[width:]), None), source)


def digest(tables: Mapping[str, Table], classes: Sequence[str] | None = None) -> str:
    """Return the SHA-256 of split names and texts; with classes also of these, the labels and the groups."""
    sha = hashlib.sha256(b"" if classes is None else repr(tuple(classes)).encode())
    for name in sorted(tables):
        table = tables[name]
        for column in table.texts:
            digest_column(sha, name, len(column), column.batches)
        if classes is not None:
            digest_column(sha, name, len(table), table.labels.batches)
            groups = Column.of([]) if table.groups is None else table.groups
            digest_column(sha, name, len(groups), groups.batches)
    return sha.hexdigest()
