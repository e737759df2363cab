"""Rows of TSV, CSV, JSON lines and Parquet files: the values of the wanted columns, one row after the other.

CSV and JSON are parsed by Python's own `csv` and `json`, which are strict: `pyarrow.csv` takes an open quote for the end of the
file and two rows for one without a word, and guesses types.
"""

import csv
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.data.text.files import LONGEST_LINE, OPEN, base_suffix, csv_lines, lines, opened
from zoo.errors import InputError

Column = str | int
Wanted = Mapping[str, Column]  # columns by the option that names them, such as text, first, label
Row = tuple[int | None, Sequence[Any]]
"""The line of a row, from 1 on, if its file has lines; and its values in the order of the wanted columns."""

FORMATS = (".csv", ".jsonl", ".parquet", ".tsv")

LABEL_WORDS = {"label", "labels", "class", "category", "target"}
"""Such a word in the column of labels makes the first line a header."""


def rows(path: Path, wanted: Wanted, header: bool | str) -> Iterator[Row]:
    """Yield the rows of a file of any format."""
    suffix = base_suffix(path)
    if suffix in (".tsv", ".csv"):
        tabs = suffix == ".tsv"
        hint = "a text must not hold a tab" if tabs else "a text that holds a comma must be in double quotes"
        return _delimited(_tsv(path) if tabs else _csv(path), path, wanted, header, hint)
    if suffix in (".jsonl", ".parquet"):
        return (_jsonl if suffix == ".jsonl" else _parquet)(path, wanted)
    raise InputError(f"{path}: unknown kind of file; use {', '.join(FORMATS)}, plain or packed as .gz or .xz")


def column_names(path: Path) -> list[str]:
    """Return the names of a file's columns; of TSV and CSV the fields of the first line, whether or not they are names."""
    suffix = base_suffix(path)
    if suffix == ".parquet":
        with _parquet_file(path) as file:
            return list(file.schema_arrow.names)
    if suffix == ".jsonl":
        first = next((line for _, line in lines(path)), "")
        try:
            return [*map(str, _record(first, str(path)))]
        except InputError:
            return []
    _, fields = next(_tsv(path) if suffix == ".tsv" else _csv(path), (1, []))
    return [field.strip() for field in fields]


def is_header(first: Sequence[str], wanted: Wanted, header: bool | str) -> bool:
    """Tell whether the first line of a TSV or CSV file names the columns."""
    if isinstance(header, bool):
        return header
    label = wanted["label"]
    if any(isinstance(column, str) for column in wanted.values()) or not isinstance(label, int):
        return True
    return 0 <= label < len(first) and first[label].strip().lower() in LABEL_WORDS


def few(names: Iterable[object], most: int = 8) -> str:
    """List the first few of some names."""
    listed = [repr(str(name)[:40]) for name in names]
    return ", ".join(listed[:most]) + (" ..." if len(listed) > most else "")


def _tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields between tabs. Quotes are plain characters, and only a line feed ends a line: texts may hold U+0085."""
    return ((number, line.split("\t")) for number, line in lines(path) if line.strip(" "))


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields between commas, in double quotes where they hold commas or line ends; a row stands where it begins."""
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(csv_lines(path), strict=True)
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


def _delimited(
    found: Iterator[tuple[int, list[str]]], path: Path, wanted: Wanted, header: bool | str, hint: str
) -> Iterator[Row]:
    """Yield the wanted fields of every row."""
    start, first = next(found, (1, []))
    if not first:
        raise InputError(f"{path}: no rows; the file is empty")
    named = is_header(first, wanted, header)
    index = [_index(f"{path}:{start}", column, first, named, wanted) for column in wanted.values()]
    if not named:
        yield start, [first[place] for place in index]
    width = len(first)
    for number, row in found:
        if len(row) != width:
            raise InputError(f"{path}:{number}: {len(row)} fields, but line {start} has {width}; {hint}")
        yield number, [row[place] for place in index]


def _index(location: str, column: Column, first: Sequence[str], named: bool, wanted: Wanted) -> int:
    """Return the number of a column."""
    if isinstance(column, int):
        if not 0 <= column < len(first):
            raise _no_column(location, column, range(len(first)))
        return column
    if not named:
        raise InputError(f"{location}: column {column!r} is a name, but header=false; give its number, from 0 on")
    names = [name.strip() for name in first]
    if names.count(column) > 1:
        raise InputError(f"{location}: {names.count(column)} columns are called {column!r}; give the number of one, from 0 on")
    if column not in names:
        raise _no_column(location, column, names, wanted, ", or by number, from 0 on, if this is no header")
    return names.index(column)


def _jsonl(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield the wanted values of one JSON object per line."""
    if numbers := [column for column in wanted.values() if isinstance(column, int)]:
        raise InputError(f"{path}: column {numbers[0]}: the values of JSON lines have no numbers; give the name")
    columns = [*wanted.values()]
    for number, line in lines(path):
        if line.strip():
            record = _record(line, f"{path}:{number}")
            if missing := [column for column in columns if column not in record]:
                raise _no_column(f"{path}:{number}", missing[0], record, wanted)
            yield number, [record[column] for column in columns]


def _record(line: str, location: str) -> dict[Any, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{location}: not JSON ({error}); every line must be one object") from error
    if not isinstance(record, dict):
        raise InputError(f"{location}: a JSON {type(record).__name__}, not an object; every line must be one object")
    return record


def _parquet(path: Path, wanted: Wanted) -> Iterator[Row]:
    """Yield the wanted values of a Parquet file."""
    with _parquet_file(path) as file:
        there = file.schema_arrow.names
        numbered = dict(enumerate(there))
        names = [numbered.get(column, column) if isinstance(column, int) else column for column in wanted.values()]
        if missing := [name for name in names if name not in there]:
            raise _no_column(str(path), missing[0], there, wanted)
        for batch in file.iter_batches(columns=sorted(set(names))):
            columns = [batch.column(name).to_pylist() for name in names]
            yield from ((None, values) for values in zip(*columns, strict=True))


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file; a packed one is unpacked to a temporary file, for Parquet is read from its end."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    with opened(path) as packed, tempfile.TemporaryFile() as unpacked:
        try:
            if path.suffix.lower() in OPEN:
                shutil.copyfileobj(packed, unpacked)
            yield pq.ParquetFile(unpacked if path.suffix.lower() in OPEN else packed)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0][:120]
            raise InputError(f"{path}: not a Parquet file that can be read ({reason})") from error


def _no_column(where: str, column: Column, there: Iterable[object], wanted: Wanted | None = None, rest: str = "") -> InputError:
    """Say that a column is missing and what columns there are; which of them is which, nobody can know."""
    hint = f"; give the columns to read by name, {', '.join(f'{name}=NAME' for name in wanted)}{rest}" if wanted else ""
    return InputError(f"{where}: no column {column!r}; there is {few(there) or 'none at all'}{hint}")
