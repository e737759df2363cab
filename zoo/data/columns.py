"""Read tables of numbers and categories by column, and encode rows for a trained model."""

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
from zoo.data.options import DataError, quote_few
from zoo.data.text.formats import BadRows, column_names, iter_rows, location
from zoo.errors import InputError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Missing values, in lower case."""

MAX_CATEGORIES = 100
NUMBER_SHARE = 0.9
"""A column is numeric if at least this share of its cells are numbers; rows with other cells are broken."""


def parse_cell(cell: Any) -> tuple[float, str]:
    """Return a cell as a number, NaN if it is not one, and as text, empty if it is missing.

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
    """The cells of a column as numbers, and as categories unless there are too many.

    Attributes:
        name: Name of the column.
        numbers: Every cell as a number, NaN if it is not one, [N].
        codes: The category of every cell, -1 if it is missing, [N]; None if there are more than `MAX_CATEGORIES`.
        categories: The code of each category.
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
        """Return a numeric column."""
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
            if len(self.categories) > MAX_CATEGORIES:
                self.codes = None

    @property
    def is_number(self) -> bool:
        """Whether the column is numeric."""
        return len(self.texts) <= (1 - NUMBER_SHARE) * (len(self.numbers) - self.num_missing)

    def category_codes(self) -> Array:
        """Return the category of every cell, int [N]; `InputError` if there are too many categories."""
        if self.codes is None:
            values = f"more than {MAX_CATEGORIES} different values, such as {quote_few(self.categories, 3)}"
            raise DataError(f"column {self.name!r} has {values}; drop it, or do not list it in categories")
        return np.array(self.codes)


@dataclass
class RawTable:
    """The columns of all files of a data set, one split after another.

    Attributes:
        columns: All columns by name.
        stops: The end of each split, in order.
        source: Name of the table in messages.
    """

    columns: dict[str, Column]
    stops: dict[str, int] = field(default_factory=dict)
    source: str = "the table"
    _files: list[tuple[int, BadRows, array[int]]] = field(default_factory=list)

    @property
    def num_rows(self) -> int:
        """Number of rows of all splits."""
        return max(self.stops.values(), default=0)

    def check(self, problems: Mapping[int, str]) -> tuple[Array, int]:
        """Report broken rows with their file and line.

        Args:
            problems: Why rows are broken, by row.

        Returns:
            A mask of the usable rows, [N], and the number of skipped rows, including those with missing fields.

        Raises:
            InputError: There are broken rows, and `on_bad_rows` is not `skip`.
        """
        usable = np.ones(self.num_rows, dtype=np.bool_)
        usable[[*problems]] = False
        for start, bad, lines in self._files:
            for row in sorted(problems):
                if start <= row < start + len(lines):
                    bad.add(lines[row - start] or None, row - start + 1, problems[row])
            bad.finish()
        return usable, sum(bad.count for _, bad, _ in self._files) if self._files else len(problems)


def read_tables(files: Mapping[str, Path], drop: Sequence[str], on_bad_rows: str) -> RawTable:
    """Read the columns of the files of every split, except those in `drop`; the first line contains their names."""
    train = files["train"]
    names = column_names(train)
    if unknown := [name for name in drop if name not in names]:
        raise InputError(f"{train}: drop: no column {unknown[0]!r}; the file has {quote_few(names)}", code="missing")
    names = [name for name in names if name not in drop]
    raw = RawTable({name: Column(name) for name in names}, source=str(train))
    for split, path in files.items():
        bad, lines = BadRows(path, on_bad_rows), array("q")
        start = raw.num_rows
        for number, row in enumerate(iter_rows(path, {name: name for name in names}, header=True), 1):
            if row.problem:
                bad.add(row.line, number, row.problem)
                continue
            lines.append(row.line or 0)
            for column, cell in zip(raw.columns.values(), row.values, strict=True):
                column.add(cell)
        raw.stops[split] = start + len(lines)
        raw._files.append((start, bad, lines))
    return raw


def split_names(names: str | Iterable[str]) -> list[str]:
    """Return a list of names from a sequence, or from a string separated by commas."""
    return [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]


def encode_row(info: TableInfo, cells: Mapping[str, Any]) -> Tensor:
    """Return the features of a row, float32 [in_features], standardised as in training.

    Raises:
        InputError: A numeric column contains text.
    """
    parsed = {name: parse_cell(cell) for name, cell in cells.items()}
    features = []
    for column, value in zip(info.columns, info.values, strict=True):
        number, text = parsed[column]
        if value is None and text and math.isnan(number):
            raise DataError(f"column {column!r} is numeric, but contains {text[:40]!r}")
        features.append(number if value is None else float(text == value))
    return info.standardise(torch.tensor(features, dtype=torch.float64))


def read_rows(path: Path, info: TableInfo) -> Iterator[tuple[int, Tensor]]:
    """Yield the line of every row (in Parquet its number) and its features; the file needs no target column."""
    columns = {name: name for name in dict.fromkeys(info.columns)}
    for number, row in enumerate(iter_rows(path, columns, header=True), 1):
        row_location = location(path, row.line, number)
        if row.problem:
            raise DataError(f"{row_location}: {row.problem}")
        try:
            features = encode_row(info, dict(zip(columns, row.values, strict=True)))
        except InputError as error:
            raise DataError(f"{row_location}: {error}") from None
        yield row.line or number, features
