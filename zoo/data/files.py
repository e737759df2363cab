"""Read text files, plain or compressed, and the rows of TSV, CSV, JSON lines and Parquet files, each with its line number.

CSV and JSON are parsed by Python's `csv` and `json`, which are strict. The readers of `datasets`, pandas and pyarrow lose line
numbers, guess types, fill short rows with missing values, and let an unclosed quote swallow the rest of the file.
"""

import csv
import gzip
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.options import DataError, quote_few
from zoo.errors import InputError

OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""Functions that open compressed files, by file extension."""

PACKED = (b"PK\3\4", b"BZh91AY&SY", b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"\xfd7zXZ")
"""How files of zip, bzip2, zstd, gzip and xz start."""

BLOCK = 2**20  # bytes per read
LONGEST_LINE = 2**24  # bytes; a longer line is not text, and could exhaust the memory
MAX_RATIO, MIN_LIMIT = 100, 100 * 2**20
"""A compressed file may expand to `MAX_RATIO` times its size, or to `MIN_LIMIT` bytes if that is more. Texts and images expand
3 to 20 times, decompression bombs 1,000 times."""


def data_suffix(path: Path) -> str:
    """Return the lower-case extension of a file name without that of the compression: `.tsv` for `X.TSV.gz`."""
    return (path.with_suffix("") if path.suffix.lower() in OPENERS else path).suffix.lower()


def check_unpacked(path: Path, size: int) -> None:
    """Raise `InputError` if a compressed file expands to `size` bytes and that exceeds the limit."""
    if size > max(MIN_LIMIT, MAX_RATIO * path.stat().st_size):
        raise InputError(f"{path}: expands to more than {MAX_RATIO} times its size; if this is intended, decompress it first")


def check_archive(path: Path) -> None:
    """Raise `InputError` if the files of a zip archive, which may be followed by other bytes, expand beyond the limit."""
    with zipfile.ZipFile(path) as archive:
        check_unpacked(path, sum(info.file_size for info in archive.infolist()))


@contextmanager
def open_binary(path: Path) -> Iterator[Any]:
    """Open a file for reading, decompressed if its name ends in .gz or .xz; any error is raised as a one-line `DataError`."""
    try:
        with OPENERS.get(path.suffix.lower(), open)(path, "rb") as stream:
            if stream.peek(16).startswith(PACKED):
                raise DataError(f"{path}: an archive or compressed file; unpack it, or compress the text itself as .gz or .xz")
            yield stream
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{path}: cannot be read ({reason}); check that the file is complete and its extension right"
        ) from error


def files_in(folder: Path, endings: Sequence[str]) -> list[Path]:
    """Return the files with these endings in a folder and its subfolders, sorted; names that start with a dot are skipped.

    macOS, Jupyter and others store copies and resource forks under such names, with the endings of the originals. Links to
    folders are followed, each folder once.
    """
    found, seen = list[Path](), set[str]()
    for parent, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(parent)) in seen:  # a link may lead to a folder above it
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if name[0] != ".")
        found += [Path(parent, name) for name in names if name[0] != "." and name.lower().endswith(tuple(endings))]
    return sorted(file for file in found if file.is_file())


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their line breaks; only a line feed ends a line."""
    size = 0
    with open_binary(path) as stream:
        for number, line in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 1):
            size += len(line)
            if size > MIN_LIMIT:
                check_unpacked(path, size)
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}:{number}: longer than {LONGEST_LINE >> 20} MiB; expected lines of text")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{number}: {non_utf8(line[error.start])}") from error
            yield text


def read_text(path: Path, errors: str = "strict") -> str:
    """Read a whole UTF-8 file, without a byte order mark; `errors` are those of `bytes.decode`."""
    content = bytearray()
    with open_binary(path) as stream:
        while block := stream.read(BLOCK):
            content += block
            check_unpacked(path, len(content))
    try:
        return str(content, "utf-8-sig", errors)
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise DataError(f"{path}:{line}: {non_utf8(content[error.start])}") from error


def non_utf8(byte: int) -> str:
    """Return the message for a byte that is not UTF-8."""
    return f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8, for example with iconv -f CP1252 -t UTF-8"


ColumnKey = str | int  # the name of a column, or its number from 0

FORMATS = (".tsv", ".csv", ".jsonl", ".parquet")
ENDINGS = tuple(f"{suffix}{pack}" for suffix in FORMATS for pack in ("", *OPENERS))
MAX_LISTED = 10  # broken rows listed in a message
DELIMITERS = {".csv": ",;\t|", ".tsv": "\t,;|"}  # the default first


class Row(NamedTuple):
    """One row of a file."""

    line: int  # the first line, from 1; the number of the row in a Parquet file
    values: Sequence[Any]  # of the requested columns, in order
    problem: str = ""  # why the row cannot be read


class BadRows:
    """Count the broken rows of a file, or images of a folder, and report them in one error unless `policy` is `skip`."""

    def __init__(self, path: Path, policy: str, unit: str = "rows") -> None:
        if policy not in ("error", "skip"):
            raise InputError(f"on_bad_rows={policy!r}: use error or skip")
        self.path, self.policy, self.unit, self.count = path, policy, unit, 0
        self.listed: list[tuple[str, str]] = []  # the first ones: place and reason

    def add(self, place: str, problem: str) -> None:
        """Add a row at a `location`, or an image by its path."""
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append((place, problem))

    def finish(self) -> None:
        """Raise `InputError` with the number of broken rows and the locations of the first ten, unless they are skipped."""
        if self.policy == "skip" or not self.count:
            return
        (first, problem), *others = self.listed
        message = f"{first}: {problem}; skip it with on_bad_rows=skip"
        if others:
            numbers = ", ".join(where.removeprefix(f"{self.path}").lstrip(":, /") for where, _ in others)
            more = " ..." if self.count > len(self.listed) else ""
            message += f" ({self.count:,} broken {self.unit}; the others: {numbers}{more})"
        raise DataError(message)


def location(source: Path | str, line: int) -> str:
    """Return FILE:LINE, or the number of the row in a Parquet file, which has no lines."""
    return f"{source}, row {line}" if data_suffix(Path(source)) == ".parquet" else f"{source}:{line}"


def iter_rows(
    path: Path, columns: Sequence[ColumnKey], header: bool = True, hint: str = "", delimiter: str = "auto"
) -> Iterator[Row]:
    """Yield the values of some columns for every row of a file in any of the `FORMATS`.

    `header` tells whether the first line of a TSV or CSV file contains the names; `hint` ends the message for a missing column.
    For `delimiter` see `find_delimiter`.
    """
    suffix = file_format(path)
    if suffix == ".jsonl":
        return _jsonl(path, columns, hint)
    return _parquet(path, columns, hint) if suffix == ".parquet" else _delimited(path, columns, header, hint, delimiter)


def file_format(path: Path) -> str:
    """Return which of the `FORMATS` a file has by its name; `InputError` for others."""
    if (suffix := data_suffix(path)) not in FORMATS:
        usage = f"use {', '.join(FORMATS)}, plain or compressed as .gz or .xz"
        raise InputError(f"{path}: unknown file format; {usage}", code="unsupported")
    return suffix


def find_delimiter(path: Path, delimiter: str = "auto") -> str:
    """Return the delimiter of a TSV or CSV file, empty for other formats.

    With `auto` it is the one of `DELIMITERS` that cuts most of the first lines into as many fields as the very first, at least
    two.
    """
    if (suffix := data_suffix(path)) not in DELIMITERS:
        return ""
    if delimiter != "auto":
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
            raise InputError(f"delimiter={delimiter!r}: use one character, such as ';', or auto")
        return delimiter
    lines = [line for line in islice(read_lines(path), 20) if line.strip()]

    def agreeing(delimiter: str) -> int:
        plain = (line.split(delimiter) for line in lines)
        try:
            rows = plain if _is_plain(path, delimiter) else csv.reader(lines, delimiter=delimiter)
            widths = [len(fields) for fields in rows if fields]
        except csv.Error:
            return 0
        return widths.count(widths[0]) if widths and widths[0] > 1 else 0

    return max(DELIMITERS[suffix], key=agreeing)


def column_names(path: Path, delimiter: str = "auto") -> list[str]:
    """Return the column names of a file; for TSV and CSV the fields of the first line, header or not."""
    suffix = file_format(path)
    if suffix == ".parquet":
        with _parquet_file(path) as file:
            return list(file.schema_arrow.names)
    if suffix == ".jsonl":
        number, line = next(((i, line) for i, line in enumerate(read_lines(path), 1) if line.strip()), (1, "{}"))
        if isinstance(record := _record(line), str):
            raise DataError(f"{path}:{number}: {record}")
        return [*map(str, record)]
    return [field.strip() for field in next(_fields(path, find_delimiter(path, delimiter)), Row(1, [])).values]


def _fields(path: Path, delimiter: str) -> Iterator[Row]:
    if not _is_plain(path, delimiter):
        yield from _csv(path, delimiter)
        return
    for number, line in enumerate(read_lines(path), 1):  # quotes are plain characters, and texts may contain U+0085
        line = line.removesuffix("\n").removesuffix("\r")
        if line.strip(" "):
            yield Row(number, line.split("\t"))


def _is_plain(path: Path, delimiter: str) -> bool:
    """Return whether quotes are plain characters."""
    return delimiter == "\t" and data_suffix(path) == ".tsv"


def _csv(path: Path, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(read_lines(path), delimiter=delimiter, strict=True)
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


def _delimited(path: Path, columns: Sequence[ColumnKey], header: bool, hint: str, delimiter: str) -> Iterator[Row]:
    delimiter = find_delimiter(path, delimiter)
    rows = _fields(path, delimiter)
    first = next(rows, Row(1, [], "no rows; the file is empty"))
    if first.problem:
        raise DataError(f"{path}:{first.line}: {first.problem}")
    names = [name.strip() for name in first.values] if header else [*map(str, range(len(first.values)))]
    index = [_find(column, names, f"{path}:{first.line}", hint) for column in columns]
    if not header:
        yield Row(first.line, [first.values[i] for i in index])
    for line, fields, problem in rows:
        if not problem and len(fields) != len(first.values):
            problem = f"{len(fields)} fields, but line {first.line} has {len(first.values)}"
            quoted = f"; quote fields that contain {delimiter!r}"
            problem += "; texts must not contain tabs" if _is_plain(path, delimiter) else quoted
        yield Row(line, [] if problem else [fields[i] for i in index], problem)


def _find(column: ColumnKey, names: list[str], place: str, hint: str) -> int:
    if isinstance(column, int) and column in range(len(names)):
        return column
    if not isinstance(column, int) and names.count(column) == 1:
        return names.index(column)
    raise InputError(f"{place}: {_no_column(column, names, hint)}", code="missing")


def _no_column(column: ColumnKey, names: list[str], hint: str) -> str:
    number = "no column" if column not in names else f"{names.count(str(column))} columns"
    return f"{number} {column!r}; the file has {quote_few(names) or 'no columns'}{hint}"


def _record(line: str) -> dict[Any, Any] | str:
    """Parse a line as a JSON object, or return why it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error}); expected one object per line"
    return record if isinstance(record, dict) else f"a JSON {type(record).__name__}; expected one object per line"


def _jsonl(path: Path, columns: Sequence[ColumnKey], hint: str) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            record = _record(line)
            if isinstance(record, str):
                yield Row(number, [], record)
            elif missing := [column for column in columns if column not in record]:
                yield Row(number, [], _no_column(missing[0], [*record], hint))
            else:
                yield Row(number, [record[column] for column in columns])


def _parquet(path: Path, columns: Sequence[ColumnKey], hint: str) -> Iterator[Row]:
    with _parquet_file(path) as file:
        existing = file.schema_arrow.names
        names = [existing[_find(column, existing, str(path), hint)] for column in columns]
        batches = file.iter_batches(columns=sorted(set(names)))
        rows = (row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True))
        yield from (Row(number, row) for number, row in enumerate(rows, 1))


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    with open_binary(path) as stream:
        try:
            yield pq.ParquetFile(stream)
        except pa.ArrowException as error:
            raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0][:120]})") from error
