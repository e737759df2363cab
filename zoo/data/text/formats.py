"""Stream the rows of TSV, CSV, JSON lines and Parquet files, each with its line number.

CSV and JSON are parsed by Python's `csv` and `json`, which are strict. The readers of `datasets`, pandas and pyarrow lose line
numbers, guess types, fill short rows with missing values, and let an unclosed quote swallow the rest of the file.
"""

import csv
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.options import DataError, quote_few
from zoo.data.text.files import LONGEST_LINE, OPENERS, data_suffix, open_binary, read_csv_lines, read_lines
from zoo.errors import InputError

ColumnKey = str | int  # the name of a column, or its number from 0
ColumnKeys = Mapping[str, ColumnKey]  # by the option that sets them, such as text, first or label

FORMATS = (".csv", ".jsonl", ".parquet", ".tsv")
MAX_LISTED = 10  # broken rows listed in a message

LABEL_WORDS = {"label", "labels", "class", "category", "target"}
"""The first line is a header if the label column starts with one of these words."""


class Row(NamedTuple):
    """One row of a file.

    Attributes:
        line: The number of its first line, from 1; None in a Parquet file.
        values: The values of the requested columns, in order.
        problem: Why the row cannot be read; empty if it can.
    """

    line: int | None
    values: Sequence[Any]
    problem: str = ""


class BadRows:
    """Count the broken rows of a file, and report them in one error.

    Args:
        path: The file.
        policy: `error` to raise in `finish`, `skip` to only count.
    """

    def __init__(self, path: Path, policy: str) -> None:
        self.path, self.policy, self.count = path, policy, 0
        self._listed: list[tuple[str, str]] = []

    def add(self, line: int | None, number: int, problem: str) -> None:
        """Add row `number`, from 1, that starts at `line`."""
        self.count += 1
        if len(self._listed) < MAX_LISTED:
            self._listed.append((location(self.path, line, number), problem))

    def finish(self) -> None:
        """Raise `InputError` with the number of broken rows and the locations of the first ten, unless they are skipped."""
        if self.policy == "skip" or not self.count:
            return
        (first, problem), *others = self._listed
        message = f"{first}: {problem}"
        if others:
            numbers = ", ".join(where.removeprefix(f"{self.path}").lstrip(":, ") for where, _ in others)
            more = " ..." if self.count > len(self._listed) else ""
            message += f" ({self.count:,} broken rows; the others: {numbers}{more}; use on_bad_rows=skip to skip them)"
        raise DataError(message)


def location(path: Path, line: int | None, number: int) -> str:
    """Return FILE:LINE, or for a file without lines the number of the row."""
    return f"{path}, row {number}" if line is None else f"{path}:{line}"


def iter_rows(path: Path, columns: ColumnKeys, header: bool | str) -> Iterator[Row]:
    """Yield the values of some columns for every row of a file in any of the `FORMATS`."""
    suffix = data_suffix(path)
    if suffix not in FORMATS:
        raise InputError(f"{path}: unknown file format; use {', '.join(FORMATS)}, plain or compressed as .gz or .xz")
    if suffix == ".jsonl":
        return _jsonl(path, columns)
    return _parquet(path, columns) if suffix == ".parquet" else _delimited(path, columns, header)


def column_names(path: Path) -> list[str]:
    """Return the column names of a file; for TSV and CSV the fields of the first line, header or not."""
    suffix = data_suffix(path)
    if suffix == ".parquet":
        with _parquet_file(path) as file:
            return list(file.schema_arrow.names)
    if suffix == ".jsonl":
        record = _record(next((line for _, line in read_lines(path)), ""))
        return [] if isinstance(record, str) else [*map(str, record)]
    return [field.strip() for field in next(_fields(path), Row(1, [])).values]


def is_header(first: Sequence[str], columns: ColumnKeys, header: bool | str) -> bool:
    """Return whether the first line of a TSV or CSV file contains the column names."""
    if isinstance(header, bool):
        return header
    label = columns["label"]
    if isinstance(label, str) or any(isinstance(column, str) for column in columns.values()):
        return True
    return 0 <= label < len(first) and first[label].strip().lower() in LABEL_WORDS


def _fields(path: Path) -> Iterator[Row]:
    if data_suffix(path) == ".csv":
        return _csv(path)
    # In TSV quotes are plain characters, and only a line feed ends a line: texts may contain U+0085.
    return (Row(number, line.split("\t")) for number, line in read_lines(path) if line.strip(" "))


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(read_csv_lines(path), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"{error}; unmatched quotes, or not CSV"
            if "end of data" in str(error) or "field limit" in str(error):  # an open quote swallows the rest of the file
                raise DataError(f"{path}:{line}: {problem}") from error
            yield Row(line, [], problem)
            continue
        if fields:
            yield Row(line, fields)


def _delimited(path: Path, columns: ColumnKeys, header: bool | str) -> Iterator[Row]:
    rows = _fields(path)
    start, first, problem = next(rows, Row(1, [], "no rows; the file is empty"))
    if problem:
        raise DataError(f"{path}:{start}: {problem}")
    has_header = is_header(first, columns, header)
    names = [name.strip() for name in first]
    index = [_index(f"{path}:{start}", column, names, has_header, columns) for column in columns.values()]
    if not has_header:
        yield Row(start, [first[i] for i in index])
    hint = "quote fields that contain a comma" if data_suffix(path) == ".csv" else "texts must not contain tabs"
    for line, fields, problem in rows:
        if not problem and len(fields) != len(first):
            problem = f"{len(fields)} fields, but line {start} has {len(first)}; {hint}"
        yield Row(line, [] if problem else [fields[i] for i in index], problem)


def _index(header_location: str, column: ColumnKey, names: list[str], has_header: bool, columns: ColumnKeys) -> int:
    if isinstance(column, int):
        if column in range(len(names)):
            return column
        problem = f"no column {column}; expected a number from 0 to {len(names) - 1}"
    elif not has_header:
        problem = f"column {column!r} is a name, but header=false; use its number, from 0"
    elif names.count(column) > 1:
        problem = f"{names.count(column)} columns are called {column!r}; use the number of one, from 0"
    elif column in names:
        return names.index(column)
    else:
        problem = _no_column(column, names, columns, ", or by number from 0 if the file has no header")
    raise InputError(f"{header_location}: {problem}", code="missing")


def _jsonl(path: Path, columns: ColumnKeys) -> Iterator[Row]:
    if numbers := [column for column in columns.values() if isinstance(column, int)]:
        raise InputError(f"{path}: column {numbers[0]}: JSON lines have no column numbers; use the name")
    for number, line in read_lines(path):
        if line.strip():
            record = _record(line)
            if isinstance(record, str):
                yield Row(number, [], record)
            elif missing := [column for column in columns.values() if column not in record]:
                yield Row(number, [], _no_column(missing[0], record, columns))
            else:
                yield Row(number, [record[column] for column in columns.values()])


def _record(line: str) -> dict[Any, Any] | str:
    """Parse a line as a JSON object, or return why it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error}); expected one object per line"
    return record if isinstance(record, dict) else f"a JSON {type(record).__name__}; expected one object per line"


def _parquet(path: Path, columns: ColumnKeys) -> Iterator[Row]:
    with _parquet_file(path) as file:
        existing = file.schema_arrow.names
        numbered = dict(enumerate(existing))
        names = [numbered.get(column, column) if isinstance(column, int) else column for column in columns.values()]
        if missing := [name for name in names if name not in existing]:
            raise InputError(f"{path}: {_no_column(missing[0], existing, columns)}", code="missing")
        for batch in file.iter_batches(columns=sorted(set(names))):
            values = [batch.column(name).to_pylist() for name in names]
            yield from (Row(None, row) for row in zip(*values, strict=True))


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file, decompressed to a temporary file if needed, since Parquet is read from its end."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    with open_binary(path) as stream, tempfile.TemporaryFile() as plain:
        try:
            if is_compressed := path.suffix.lower() in OPENERS:
                shutil.copyfileobj(stream, plain)
            yield pq.ParquetFile(plain if is_compressed else stream)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0][:120]
            raise DataError(f"{path}: not a readable Parquet file ({reason})") from error


def _no_column(column: ColumnKey, names: Iterable[object], columns: ColumnKeys, advice: str = "") -> str:
    """Return the message for a missing column, with the existing ones and, for texts, the options that choose columns."""
    options = ", ".join(f"{option}=NAME" for option in columns)
    hint = f"; choose columns with {options}{advice}" if "label" in columns else ""  # tables of numbers have no such options
    return f"no column {column!r}; the file has {quote_few(names) or 'no columns'}{hint}"
