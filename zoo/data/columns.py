"""Columns of numbers and categories, and how rows are encoded for a trained model."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from zoo.data.files import Row, column_names, find_delimiter, iter_rows, location, read_lines
from zoo.data.info import TableInfo
from zoo.data.loader import Array
from zoo.data.options import DataError, quote_few

MISSING = frozenset({"", "na", "n/a", "<na>", "nan", "nat", "null", "none", "?"})
"""Missing values, in lower case."""

BOOLEANS = frozenset({"true", "false"})

MAX_CATEGORIES = 100
NUMBER_SHARE = 0.9
"""A column is numeric if at least this share of its cells are numbers; rows with other cells are broken."""

DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4}))([ T].*)?")
COMMA_NUMBER = re.compile(r"[+-]?\d+(,\d+)+")


def parse_cell(cell: object) -> tuple[float, str]:
    """Return a cell as a number, NaN if it is not one, and as text, empty if it is missing.

    Pandas reads the words True and False as booleans, and the whole numbers of a column with missing values as floats, so
    these have one text in every form.

    >>> parse_cell(" 1.50"), parse_cell("red"), parse_cell(None)
    ((1.5, '1.50'), (nan, 'red'), (nan, ''))
    >>> parse_cell(True) == parse_cell("True"), parse_cell(2.0) == parse_cell("2")
    (True, True)
    """
    text = "" if cell is None else str(cell).strip()
    if text.lower() in MISSING:
        return math.nan, ""
    if text.lower() in BOOLEANS:
        return math.nan, text.lower()
    try:
        number = math.nan if "_" in text else float(text)  # Python reads 1_2 as 12
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        return math.nan, text
    return number, text.removesuffix(".0") if number.is_integer() else text


@dataclass(frozen=True, eq=False)
class Column:
    """The cells of a column as numbers, and as categories unless all are numbers.

    Attributes:
        numbers: Every cell as a number, NaN if it is not one, float64 [N]; infinite only in arrays of numbers.
        texts: Every cell as text, empty if it is missing, object [N]; None if all cells are numbers.
    """

    name: str
    numbers: Array
    texts: Array | None = None

    @classmethod
    def of(cls, name: str, *parts: Sequence[Any], has_categories: bool = False) -> Self:
        """Parse the cells of a column, one split after another; arrays of numbers are not parsed unless they are categories."""
        if not has_categories and all(isinstance(part, np.ndarray) and part.dtype.kind in "biuf" for part in parts):
            return cls(name, np.concatenate(parts).astype(np.float64))
        parsed = [parse_cell(cell) for part in parts for cell in (part.tolist() if isinstance(part, np.ndarray) else part)]
        return cls(name, np.array([number for number, _ in parsed], float), np.array([text for _, text in parsed], object))

    @property
    def words(self) -> Array:
        """Whether a cell is neither a finite number nor missing, [N]."""
        return np.isinf(self.numbers) if self.texts is None else np.isnan(self.numbers) & (self.texts != "")

    @property
    def is_number(self) -> bool:
        """Whether the column is numeric."""
        return self.texts is None or self.words.sum() <= (1 - NUMBER_SHARE) * (self.texts != "").sum()

    @property
    def categories(self) -> set[str]:
        """The categories of all rows."""
        return {*(() if self.texts is None else self.texts)} - {""}

    def category_texts(self) -> Array:
        """Return the category of every cell, empty if it is missing, [N]."""
        return np.full(len(self.numbers), "", object) if self.texts is None else self.texts

    @property
    def is_row_number(self) -> bool:
        """Whether the cells are different whole numbers, and consecutive unless the name is that of an index of pandas."""
        steps = np.diff(np.sort(self.numbers[np.isfinite(self.numbers)]))
        is_whole = len(steps) > 0 and len(steps) == len(self.numbers) - 1
        return is_whole and bool(np.all(steps >= 1 if self.is_index else steps == 1))

    @property
    def is_index(self) -> bool:
        """Whether pandas gives this name to an index."""
        return self.name in ("", "__index_level_0__")

    @property
    def looks_like(self) -> str:
        """What most of the texts are instead of categories: dates, or numbers with a comma; empty for others."""
        kinds = {"dates": DATE, "numbers with a comma": COMMA_NUMBER}
        texts = [text for text in self.category_texts() if text]
        return next((name for name, kind in kinds.items() if sum(map(bool, map(kind.fullmatch, texts))) > len(texts) / 2), "")


def table_rows(path: Path, columns: Sequence[str], delimiter: str = "auto") -> Iterator[Row]:
    """Yield the values of some columns; with semicolons as delimiters a comma in a number is a decimal comma."""
    rows = iter_rows(path, columns, delimiter=delimiter)
    if find_delimiter(path, delimiter) != ";":
        return rows
    return (row._replace(values=[_with_point(value) for value in row.values]) for row in rows)


def _with_point(cell: str) -> str:
    return cell.replace(",", ".") if cell.count(",") == 1 and COMMA_NUMBER.fullmatch(cell.strip()) else cell


def is_frame(value: object) -> bool:
    """Return whether a value is a DataFrame of pandas, which need not be installed."""
    return hasattr(value, "iloc") and hasattr(value, "columns")


def by_name(cells: Mapping[Any, Any]) -> dict[str, Any]:
    """Return cells by the names of their columns as text, also without the spaces around it, which are not read from files."""
    texts = {str(name): cell for name, cell in cells.items()}
    return {name.strip(): cell for name, cell in texts.items()} | texts


def split_names(names: str | Iterable[str]) -> list[str]:
    """Return a list of names from a sequence, or from a string separated by commas."""
    return [name.strip() for name in (names.split(",") if isinstance(names, str) else names) if name.strip()]


def encode_row(info: TableInfo, cells: Mapping[str, object]) -> Tensor:
    """Return the features of a row, float32 [in_features], standardized as in training.

    A number that is no category as text, such as 7 for 007, is that of the same value.
    """
    if missing := [name for name in info.columns if name not in cells]:
        raise DataError(f"no column {missing[0]!r}; the row has {quote_few(cells) or 'no columns'}")
    parsed = {name: parse_cell(cells[name]) for name in dict.fromkeys(info.columns)}
    features, known = [], {*zip(info.columns, info.values, strict=True)}
    for column, value in zip(info.columns, info.values, strict=True):
        number, text = parsed[column]
        if value is None and text and math.isnan(number):
            raise DataError(f"column {column!r} is numeric, but contains {text[:40]!r}")
        is_same = text == value or ((column, text) not in known and value is not None and number == parse_cell(value)[0])
        features.append(number if value is None else float(is_same))
    return info.standardize(torch.tensor(features, dtype=torch.float64))


def read_rows(path: Path, info: TableInfo) -> Iterator[tuple[int, Tensor | DataError]]:
    """Yield the line of every row (in Parquet its number), and its features or its error; the file needs no target column."""
    columns = list(dict.fromkeys(info.columns))
    for row in table_rows(path, columns, _delimiter_of(path, columns)):
        try:
            if row.problem:
                raise DataError(row.problem)
            features: Tensor | DataError = encode_row(info, dict(zip(columns, row.values, strict=True)))
        except DataError as error:
            features = DataError(f"{location(path, row.line)}: {error}")
        yield row.line, features


def _delimiter_of(path: Path, columns: Sequence[str]) -> str:
    """Return the delimiter of a file, which may be any character that finds the columns, as its training may have been told."""
    found = find_delimiter(path)
    first = next((line for line in read_lines(path) if line.strip()), "") if found else ""
    marks = (mark for mark in dict.fromkeys(found + first) if mark not in '"\r\n')
    return next((mark for mark in marks if {*columns} <= {*column_names(path, mark)}), found)
