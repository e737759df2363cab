"""Tables of texts and labels that know the location of every row."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import DataError
from zoo.data.splits import Mask

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one or two texts, with labels if they are to be classified.

    Attributes:
        texts: One column of texts, or two for pairs.
        labels: The label of every row, as written in the file; empty for pairs to translate.
        groups: The question of every row, if its answers are to be ranked.
        source: Name of the file or data set for error messages.
        lines: The line of every row in `source`, from 1.
        files: The files of the two columns, if each line of theirs is a text (parallel files).
        skipped: Number of broken rows that were skipped.
        rows: The index of every row in `source`, from 0, if rows were removed; else None.

    Example:
        >>> table = Table((["good", "bad", "fine"],), ["1", "0", "1"], source="reviews")
        >>> table.take([2, 0]).location(0), table.take([2, 0]).labels
        ('reviews, row 3', ['1', '1'])
    """

    texts: tuple[Sequence[str], ...]
    labels: Sequence[str] = ()
    groups: Sequence[str] | None = None
    source: str = "the data"
    lines: Sequence[int] | Array | None = None
    files: tuple[str, str] | None = None
    skipped: int = 0
    rows: Array | None = None

    def __post_init__(self) -> None:
        if len(self.texts) not in (1, 2):
            raise DataError(f"{self.source}: {len(self.texts)} columns of text; use one or two")
        columns = {"second texts": self.texts[-1], "labels": self.labels or None, "groups": self.groups, "lines": self.lines}
        for name, column in columns.items():
            if column is not None and len(column) != len(self):
                raise DataError(f"{self.source}: {len(self)} texts but {len(column)} {name}; use one per row")

    def __len__(self) -> int:
        return len(self.texts[0])

    def location(self, row: int, side: int = 0) -> str:
        """Return where a row comes from: FILE:LINE (of parallel files, that of a side), or the source and the row number."""
        number = 1 + (row if self.rows is None else int(self.rows[row]))
        if self.files is not None:
            return f"{self.files[side]}:{number}"
        return f"{self.source}, row {number}" if self.lines is None else f"{self.source}:{self.lines[row]}"

    def take(self, rows: Sequence[int] | Array) -> Self:
        """Return some rows; they keep their locations."""
        index = np.asarray(rows, dtype=np.int32)

        def take(column: Sequence[Item]) -> list[Item]:
            return [column[row] for row in index.tolist()]

        return replace(
            self,
            texts=tuple(map(take, self.texts)),
            labels=take(self.labels) if self.labels else (),
            groups=None if self.groups is None else take(self.groups),
            lines=None if self.lines is None else np.asarray(self.lines)[index],
            rows=index if self.rows is None else self.rows[index],
        )

    def where(self, keep: Mask | Sequence[bool]) -> Self:
        """Return the rows of a mask."""
        return self if np.all(keep) else self.take(np.flatnonzero(keep))


def codes(values: Sequence[Any] | Array) -> Array:
    """Number the values of a column in order of first appearance, int32 [N]."""
    known: dict[Any, int] = {}
    return np.fromiter((known.setdefault(value, len(known)) for value in values), np.int32, len(values))


def table_digest(tables: Mapping[str, Table], classes: Sequence[str] | None = None) -> str:
    """Return the SHA-256 of split names and texts, and if there are classes of these, the labels and the groups."""
    sha = hashlib.sha256(b"" if classes is None else repr(tuple(classes)).encode())
    for name, table in sorted(tables.items()):
        others = () if classes is None else (table.labels, table.groups or ())
        for column in (*table.texts, *others):
            sha.update(f"{name} {len(column)}".encode())
            sha.update(np.fromiter((len(text.encode()) for text in column), "<i8", len(column)).tobytes())
            for text in column:
                sha.update(text.encode())
    return sha.hexdigest()
