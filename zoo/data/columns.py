"""Read tables of numbers and categories, column by column, and encode rows for a trained model."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from zoo.data.info import TableInfo
from zoo.data.loader import Array
from zoo.data.options import DataError
from zoo.data.text.formats import BadRows, column_names, few, rows
from zoo.errors import InputError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Cells without a value, in lower case."""

MOST_CATEGORIES = 100
NUMBER_SHARE = 0.9
"""A column holds numbers if at least this share of its cells are numbers; the other rows are broken."""


def parse_cell(cell: Any) -> tuple[float, str]:
    """Return a cell as a number, NaN if it is none, and as text, empty if it is missing.

    >>> parse_cell(" 1.50"), parse_cell("red"), parse_cell(None), parse_cell(True)
    ((1.5, '1.50'), (nan, 'red'), (nan, ''), (nan, 'true'))
    """
    text = "" if cell is None else str(cell).strip()
    if isinstance(cell, bool):
        return math.nan, text.lower()
    if text.lower() in MISSING:
        return math.nan, ""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    return (number if math.isfinite(number) else math.nan), text


class Column:
    """The cells of one column, as numbers and, while there are few different ones, as categories.

    Attributes:
        name: Its name.
        numbers: Every cell as a number, NaN if it is none, [N].
        codes: The category of every cell, -1 if it is missing, [N]; None if there are more than `MOST_CATEGORIES`.
        categories: The categories by name.
        texts: The rows whose cells are neither numbers nor missing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers, self.texts = array("d"), array("q")
        self.codes: array[int] | None = array("i")
        self.categories: dict[str, int] = {}
        self.num_missing = 0

    @classmethod
    def of_numbers(cls, name: str, numbers: Array) -> Self:
        """Make a column of a vector of numbers."""
        column = cls(name)
        column.numbers, column.codes = array("d", numbers.astype(np.float64).tobytes()), None
        return column

    def add(self, cell: Any) -> None:
        """Append a cell."""
        number, text = parse_cell(cell)
        if not text:
            self.num_missing += 1
        elif math.isnan(number):
            self.texts.append(len(self.numbers))
        self.numbers.append(number)
        if self.codes is not None:
            self.codes.append(self.categories.setdefault(text, len(self.categories)) if text else -1)
            if len(self.categories) > MOST_CATEGORIES:
                self.codes = None

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers."""
        present = len(self.numbers) - self.num_missing
        return len(self.texts) <= (1 - NUMBER_SHARE) * present

    def category_codes(self) -> Array:
        """Return the category of every cell, int [N]; `InputError` if there are too many categories."""
        if self.codes is None:
            many = f"more than {MOST_CATEGORIES} different values, such as {few(self.categories, 3)}"
            raise DataError(f"column {self.name!r} has {many}; leave it out with drop, or out of categories")
        return np.array(self.codes)


@dataclass
class RawTable:
    """The columns of the files of a data set, rows of all splits one after the other.

    Attributes:
        columns: All columns by name.
        stops: The splits in their order, and where each ends.
        source: What messages call the table.
    """

    columns: dict[str, Column]
    stops: dict[str, int] = field(default_factory=dict)
    source: str = "the table"
    _files: list[tuple[int, BadRows, array[int]]] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Number of rows of all splits."""
        return next(iter(self.stops[name] for name in reversed(self.stops)), 0)

    def check(self, problems: Mapping[int, str]) -> tuple[Array, int]:
        """Report broken rows to the files they are in.

        Args:
            problems: Why rows cannot be used, by number.

        Returns:
            A mask of the usable rows, [N], and how many rows are skipped, those without enough fields included.

        Raises:
            InputError: There are broken rows, and they are not to be skipped.
        """
        usable = np.ones(self.num_rows, dtype=np.bool_)
        for row in sorted(problems):
            usable[row] = False
        for start, bad, lines in self._files:
            for row in sorted(problems):
                if start <= row < start + len(lines):
                    bad.add(lines[row - start] or None, row - start + 1, problems[row])
            bad.finish()
        return usable, sum(bad.count for _, bad, _ in self._files) + (0 if self._files else len(problems))


def read_tables(files: Mapping[str, Path], drop: Sequence[str], on_bad_rows: str) -> RawTable:
    """Read the columns of the files of every split, all but those in `drop`; a first line names the columns."""
    train = files["train"]
    names = column_names(train)
    if unknown := [name for name in drop if name not in names]:
        raise InputError(f"{train}: drop: no column {unknown[0]!r}; there is {few(names)}", code="missing")
    names = [name for name in names if name not in drop]
    raw = RawTable({name: Column(name) for name in names}, source=str(train))
    for split, path in files.items():
        bad, lines = BadRows(path, on_bad_rows), array("q")
        start = raw.num_rows
        for number, row in enumerate(rows(path, {name: name for name in names}, header=True), 1):
            if row.problem:
                bad.add(row.line, number, row.problem)
                continue
            lines.append(row.line or 0)
            for column, cell in zip(raw.columns.values(), row.values, strict=True):
                column.add(cell)
        raw.stops[split] = start + len(lines)
        raw._files.append((start, bad, lines))
    return raw


def names_of(names: str | Iterable[str]) -> list[str]:
    """Return names that are given as a sequence or separated by commas."""
    return [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]


def encode_row(info: TableInfo, cells: Mapping[str, Any]) -> Tensor:
    """Return the features of one row, float32 [in_features], standardised as in training.

    Raises:
        InputError: A column of numbers holds text.
    """
    parsed = {name: parse_cell(cell) for name, cell in cells.items()}
    features = []
    for column, value in zip(info.columns, info.values, strict=True):
        number, text = parsed[column]
        if value is None and text and number != number:
            raise DataError(f"column {column!r} holds numbers, and here {text[:40]!r}")
        features.append(number if value is None else float(text == value))
    return info.standardise(torch.tensor(features, dtype=torch.float64))


def read_rows(path: Path, info: TableInfo) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of every row of a file (its line, if it has lines) and its features; the target may be missing."""
    wanted = {name: name for name in dict.fromkeys(info.columns)}
    for number, row in enumerate(rows(path, wanted, header=True), 1):
        location = f"{path}, row {number}" if row.line is None else f"{path}:{row.line}"
        if row.problem:
            raise DataError(f"{location}: {row.problem}")
        try:
            features = encode_row(info, dict(zip(wanted, row.values, strict=True)))
        except InputError as error:
            raise DataError(f"{location}: {error}") from None
        yield row.line or number, features
