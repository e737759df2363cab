"""Lines of fields: TSV and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from zoo.data.text.cells import Cells, Column, Wanted, no_column
from zoo.data.text.content import read_text
from zoo.errors import InputError

LABEL_WORDS = {"label", "labels", "class", "category", "target"}
"""Such a word in the column of labels makes the first line a header."""

Line = tuple[int, list[str]]


def tsv(path: Path, wanted: Wanted, header: bool | str) -> Cells:
    """Read fields between tabs. Quotes are plain characters, and only a line feed ends a line: texts may hold U+0085."""
    lines = ((number, line.removesuffix("\r")) for number, line in enumerate(read_text(path).split("\n"), 1))
    rows = ((number, line.split("\t")) for number, line in lines if line.strip(" "))
    return _cells(rows, path, wanted, header, "a text must not hold a tab")


def csv_(path: Path, wanted: Wanted, header: bool | str) -> Cells:
    """Read fields between commas, in double quotes where they hold commas or line ends; a row stands where it begins."""
    return _cells(_csv_rows(path), path, wanted, header, "a text that holds a comma must be in double quotes")


def _csv_rows(path: Path) -> Iterator[Line]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{path}:{start}: {error}; the quotes of this row do not match, or it is no CSV") from error
        if row is None:
            return
        if row:
            yield start, row


def _cells(rows: Iterator[Line], path: Path, wanted: Wanted, header: bool | str, hint: str) -> Cells:
    """Take the wanted fields of every row."""
    start, first = next(rows, (1, []))
    if not first:
        raise InputError(f"{path}: no rows; the file is empty")
    named = _named(first, wanted, header)
    index = {option: _index(f"{path}:{start}", column, first, named) for option, column in wanted.items()}
    fields: dict[str, list[str]] = {option: [] for option in wanted}
    lines = []
    for number, row in ([] if named else [(start, first)]) + list(rows):
        if len(row) != len(first):
            raise InputError(f"{path}:{number}: {len(row)} fields, but line {start} has {len(first)}; {hint}")
        lines.append(number)
        for option, place in index.items():
            fields[option].append(row[place])
    return Cells(dict(fields), wanted, str(path), lines)


def _named(first: Sequence[str], wanted: Wanted, header: bool | str) -> bool:
    """Tell whether the first line names the columns."""
    if isinstance(header, bool):
        return header
    label = wanted["label"]
    if any(isinstance(column, str) for column in wanted.values()) or not isinstance(label, int):
        return True
    return 0 <= label < len(first) and first[label].strip().lower() in LABEL_WORDS


def _index(place: str, column: Column, first: Sequence[str], named: bool) -> int:
    """Return the number of a column."""
    if isinstance(column, int):
        if not 0 <= column < len(first):
            raise no_column(place, column, range(len(first)))
        return column
    if not named:
        raise InputError(f"{place}: column {column!r} is a name, but header=false; give its number, from 0 on")
    names = [name.strip() for name in first]
    if names.count(column) != 1:
        if column in names:
            raise InputError(f"{place}: {names.count(column)} columns are called {column!r}; give the number of one, from 0 on")
        raise no_column(place, column, names, "; if this is no header, give columns by number, from 0 on")
    return names.index(column)
