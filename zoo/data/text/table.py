"""Labelled texts, and the place that each of them came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zoo.data.loader import Array
from zoo.errors import InputError

TASKS = {"text_classification": 1, "pair_classification": 2, "answer_ranking": 2}
"""The tasks on labelled text, and how many texts a row has."""


@dataclass(frozen=True)
class Table:
    """Rows of one text, or two, and a label.

    Attributes:
        texts: One column of texts, or two (pairs).
        labels: The label of every row, as it is written in the file.
        groups: The question of every row, for ranking; the first text stands for it if not given.
        source: What an error message calls the place: a file, a data set.
        lines: The line in `source` of every row, from 1 on, if it is a file of lines.
        rows: The number in `source` of every row, from 0 on, if rows were taken out of a table without lines.

    Raises:
        InputError: The columns are not one or two, or of different lengths.

    Example:
        >>> table = Table((["good", "bad", "fine"],), ["1", "0", "1"], source="reviews")
        >>> table.take([2, 0]).place(0)
        'reviews, row 3'
    """

    texts: tuple[Sequence[str], ...]
    labels: Sequence[str]
    groups: Sequence[str] | None = None
    source: str = "the data"
    lines: Sequence[int] | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if len(self.texts) not in (1, 2):
            raise InputError(f"{self.source}: {len(self.texts)} columns of text; a row has one text or two")
        columns = {"labels": self.labels, "groups": self.groups, "lines": self.lines, "rows": self.rows}
        for name, column in (("texts", self.texts[-1]), *columns.items()):
            if column is not None and len(column) != len(self.texts[0]):
                raise InputError(f"{self.source}: {len(self.texts[0])} texts but {len(column)} {name}; one per row")

    def __len__(self) -> int:
        return len(self.labels)

    def place(self, row: int) -> str:
        """Say where a row stands: FILE:LINE, or the source and the number of the row, from 1 on."""
        if self.lines is not None:
            return f"{self.source}:{self.lines[row]}"
        return f"{self.source}, row {(row if self.rows is None else self.rows[row]) + 1}"

    def take(self, index: Sequence[int] | Array) -> Table:
        """Return the rows at these places; they keep theirs."""
        index = np.asarray(index, dtype=np.int64).tolist()
        rows = None if self.lines is not None else range(len(self)) if self.rows is None else self.rows
        return replace(
            self,
            texts=tuple([column[i] for i in index] for column in self.texts),
            labels=[self.labels[i] for i in index],
            groups=None if self.groups is None else [self.groups[i] for i in index],
            lines=None if self.lines is None else [self.lines[i] for i in index],
            rows=None if rows is None else [rows[i] for i in index],
        )


def check_columns(tables: Mapping[str, Table], task: str) -> None:
    """Compare the tables of a data set with its task.

    Raises:
        InputError: A split is missing, unknown or empty, or has too many or too few columns of text.
    """
    if task not in TASKS:
        raise InputError(f"task={task!r}: use {', '.join(TASKS)}")
    if "train" not in tables or set(tables) - {"train", "val", "test"}:
        raise InputError(f"splits {sorted(tables)}: train is needed; val and test may be there")
    for name, table in tables.items():
        if len(table) == 0:
            raise InputError(f"{table.source}, {name} split: no rows; every split needs at least one")
        if len(table.texts) != TASKS[task]:
            raise InputError(f"{table.source}: {len(table.texts)} columns of text; {task} needs {TASKS[task]}")
