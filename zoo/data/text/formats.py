"""Stream the rows of TSV, CSV, JSON lines and Parquet files, each with its line number.

CSV and JSON are parsed by Python's `csv` and `json`, which are strict. The readers of `datasets`, pandas and pyarrow lose line
numbers, guess types, fill short rows with missing values, and take an unclosed quote for the end of the file.
"""

import csv
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.options import DataError
from zoo.data.text.files import LONGEST_LINE, OPEN, base_suffix, csv_lines, lines, opened
from zoo.errors import InputError

Column = str | int
Wanted = Mapping[str, Column]  # columns by the option that names them, such as text, first, label


class Row(NamedTuple):
    """One row of a file.

    Attributes:
        line: Its first line, from 1; None in a Parquet file.
        values: The values of the wanted columns, in their order.
        problem: Why the row cannot be read; empty if it can.
    """

    line: int | None
    values: Sequence[Any]
    problem: str = ""


FORMATS = (".csv", ".jsonl", ".parquet", ".tsv")
MOST_NAMED = 10  # broken rows that a message names

LABEL_WORDS = {"label", "labels", "class", "category", "target"}
"""Such a word in the column of labels makes the first line a header."""


def location(path: Path, line: int | None, number: int) -> str:
    """Return FILE:LINE, or the number of the row in a file without lines."""
    return f"{path}, row {number}" if line is None else f"{path}:{line}"


class BadRows:
    """Collects the rows of a file that cannot be used.

    Args:
        path: The file.
        policy: `error` to refuse the file when all rows are read, `skip` to leave the rows out.

    Attributes:
        count: Number of such rows.
    """

    def __init__(self, path: Path, policy: str) -> None:
        self.path, self.policy, self.count = path, policy, 0
        self._first: list[tuple[str, str]] = []

    def add(self, line: int | None, number: int, problem: str) -> None:
        """Note row `number`, from 1 on, at a line of the file if it has lines, and why it cannot be used."""
        self.count += 1
        if len(self._first) < MOST_NAMED:
            self._first.append((location(self.path, line, number), problem))

    def finish(self) -> None:
        """Raise `InputError` with the number of rows and the places of the first ten, unless they are to be skipped."""
        if self.policy == "skip" or not self.count:
            return
        (first, message), *others = self._first
        message = f"{first}: {message}"
        if others:
            named = ", ".join(place.removeprefix(f"{self.path}").lstrip(":, ") for place, _ in others)
            more = " ..." if self.count > len(self._first) else ""
            message += f" ({self.count:,} broken rows; the others: {named}{more}; on_bad_rows=skip leaves them out)"
        raise DataError(message)


def rows(path: Path, wanted: Wanted, header: bool | str) -> Iterator[Row]:
    """Yield the wanted values of every row of a file of any format."""
    suffix = base_suffix(path)
    if suffix not in FORMATS:
        raise InputError(f"{path}: unknown kind of file; use {', '.join(FORMATS)}, plain or packed as .gz or .xz")
    if suffix in (".jsonl", ".parquet"):
        return (_jsonl if suffix == ".jsonl" else _parquet)(path, wanted)
    return _delimited(path, wanted, header)


def column_names(path: Path) -> list[str]:
    """Return the names of a file's columns; of TSV and CSV the fields of the first line, whether or not they are names."""
    suffix = base_suffix(path)
    if suffix == ".parquet":
        with _parquet_file(path) as file:
            return list(file.schema_arrow.names)
    if suffix == ".jsonl":
        record = _record(next((line for _, line in lines(path)), ""))
        return [] if isinstance(record, str) else [*map(str, record)]
    return [field.strip() for field in next(_fields(path), Row(1, [])).values]


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


def _fields(path: Path) -> Iterator[Row]:
    if base_suffix(path) == ".csv":
        return _csv(path)
    # In TSV quotes are plain characters, and only a line feed ends a line: texts may hold U+0085.
    return (Row(number, line.split("\t")) for number, line in lines(path) if line.strip(" "))


def _csv(path: Path) -> Iterator[Row]:
    """Yield comma-separated fields, in double quotes where they hold commas or line ends."""
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(csv_lines(path), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            problem = f"{error}; the quotes of this row do not match, or it is no CSV"
            if "end of data" in str(error) or "field limit" in str(error):  # an open quote swallows the rest of the file
                raise DataError(f"{path}:{start}: {problem}") from error
            yield Row(start, [], problem)
            continue
        if row is None:
            return
        if row:
            yield Row(start, row)


def _delimited(path: Path, wanted: Wanted, header: bool | str) -> Iterator[Row]:
    records = _fields(path)
    start, first, problem = next(records, Row(1, [], "no rows; the file is empty"))
    if problem:
        raise DataError(f"{path}:{start}: {problem}")
    named = is_header(first, wanted, header)
    index = [_index(f"{path}:{start}", column, first, named, wanted) for column in wanted.values()]
    if not named:
        yield Row(start, [first[i] for i in index])
    csv = base_suffix(path) == ".csv"
    hint = "a text that holds a comma must be in double quotes" if csv else "a text must not hold a tab"
    for row in records:
        if row.problem:
            yield row
        elif len(row.values) != len(first):
            yield Row(row.line, [], f"{len(row.values)} fields, but line {start} has {len(first)}; {hint}")
        else:
            yield Row(row.line, [row.values[i] for i in index])


def _index(location: str, column: Column, first: Sequence[str], named: bool, wanted: Wanted) -> int:
    names: list[Any] = [name.strip() for name in first]
    if isinstance(column, int):
        if column in range(len(names)):
            return column
        problem = _no_column(column, range(len(names)))
    elif not named:
        problem = f"column {column!r} is a name, but header=false; give its number, from 0 on"
    elif names.count(column) > 1:
        problem = f"{names.count(column)} columns are called {column!r}; give the number of one, from 0 on"
    elif column in names:
        return names.index(column)
    else:
        options = wanted if "label" in wanted else None  # a table of numbers has no columns of its own names
        problem = _no_column(column, names, options, ", or by number, from 0 on, if this is no header")
    raise InputError(f"{location}: {problem}", code="missing")


def _jsonl(path: Path, wanted: Wanted) -> Iterator[Row]:
    if numbers := [column for column in wanted.values() if isinstance(column, int)]:
        raise InputError(f"{path}: column {numbers[0]}: the values of JSON lines have no numbers; give the name")
    columns = [*wanted.values()]
    for number, line in lines(path):
        if line.strip():
            record = _record(line)
            if isinstance(record, str):
                yield Row(number, [], record)
            elif missing := [column for column in columns if column not in record]:
                yield Row(number, [], _no_column(missing[0], record, wanted))
            else:
                yield Row(number, [record[column] for column in columns])


def _record(line: str) -> dict[Any, Any] | str:
    """Parse a line of JSON, or say why it is no object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error}); every line must be one object"
    if not isinstance(record, dict):
        return f"a JSON {type(record).__name__}, not an object; every line must be one object"
    return record


def _parquet(path: Path, wanted: Wanted) -> Iterator[Row]:
    with _parquet_file(path) as file:
        names_in_file = file.schema_arrow.names
        numbered = dict(enumerate(names_in_file))
        names = [numbered.get(column, column) if isinstance(column, int) else column for column in wanted.values()]
        if missing := [name for name in names if name not in names_in_file]:
            raise InputError(f"{path}: {_no_column(missing[0], names_in_file, wanted)}", code="missing")
        for batch in file.iter_batches(columns=sorted(set(names))):
            columns = [batch.column(name).to_pylist() for name in names]
            yield from (Row(None, values) for values in zip(*columns, strict=True))


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
            raise DataError(f"{path}: not a Parquet file that can be read ({reason})") from error


def _no_column(column: Column, there: Iterable[object], wanted: Wanted | None = None, rest: str = "") -> str:
    """Describe a missing column and list those that exist."""
    hint = f"; give the columns to read by name, {', '.join(f'{name}=NAME' for name in wanted)}{rest}" if wanted else ""
    return f"no column {column!r}; there is {few(there) or 'none at all'}{hint}"
