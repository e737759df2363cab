"""Read TSV, CSV, JSON lines and Parquet files, plain or compressed, into tables; every error names file and line."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zoo.data.options import DataError, list_names, resolve_path
from zoo.data.text.files import data_suffix, read_lines
from zoo.data.text.formats import (
    FORMATS,
    BadRows,
    ColumnKey,
    ColumnKeys,
    Row,
    column_names,
    is_header,
    iter_rows,
    location,
)
from zoo.data.text.table import BATCH_ROWS, Labels, Store, Table, TextColumn
from zoo.errors import InputError

SPLITS = {"train": ("train",), "val": ("val", "dev", "valid", "validation"), "test": ("test",)}
"""File names of the splits, without extensions."""

LABEL_TYPES = {str: "text", bool: "true or false", int: "a whole number"}

CACHE_VERSION = 1  # a change of how files are read must change it, so that cached files are not reused


def read_table(
    path: str | Path,
    *,
    text: ColumnKey | None = None,
    first: ColumnKey | None = None,
    second: ColumnKey | None = None,
    label: ColumnKey = "label",
    group: ColumnKey | None = None,
    header: bool | str = "auto",
    on_bad_rows: str = "error",
) -> Table:
    """Read a file of labelled texts or pairs; tables larger than 8 MiB are mapped files in the user's cache.

    Columns are given by name, or by number from 0. The file extension is the format: .tsv (quotes are plain characters, only a
    line feed ends a line), .csv, .jsonl (one object per line) or .parquet; .gz and .xz are decompressed.

    Args:
        path: The file, in UTF-8.
        text: The column of the text; for pairs use `first` and `second` instead.
        first: The column of the first text of a pair.
        second: The column of the second text.
        label: The column of the label.
        group: The column that identifies the question of a ranking.
        header: Whether the first line of a TSV or CSV file is a header. `auto`: it is one if a column is given by name, or if
            its label column starts with a word such as "label".
        on_bad_rows: `error`, or `skip` to skip broken rows, which `Table.skipped` counts.
    """
    pair = ("first", "second") if group is None else ("query", "answer")  # the options of their presets
    texts = {"text": text} if text is not None else dict(zip(pair, (first, second), strict=True))
    check_reading(header, on_bad_rows)
    file = resolve_path(path, "data file")
    columns = {option: column for option, column in {**texts, "label": label, "group": group}.items() if column is not None}
    if group in texts.values():  # the question text itself identifies the question
        del columns["group"]
    bad = BadRows(file, on_bad_rows)
    batches = _record_batches(iter_rows(file, columns, header), columns, bad)
    store = Store.cached(batches, file, *columns.items(), header, on_bad_rows, CACHE_VERSION)
    if on_bad_rows == "skip":  # count the broken rows of a cached table, too
        deque(batches, maxlen=0)
    if not store.starts[-1]:
        raise DataError(f"{file}: no rows; expected at least one besides a header")
    option_of = {column: option for option, column in columns.items()}
    table = Table(
        tuple(TextColumn(store, option) for option in texts),
        Labels.of(batch.column("label").to_pylist() for batch in store.batches),
        None if group is None else TextColumn(store, option_of[group]),
        str(file),
        _line_numbers(store),
        skipped=bad.count,
    )
    if header == "auto" and data_suffix(file) in (".tsv", ".csv") and not is_header(column_names(file), columns, header):
        _check_forgotten_header(table)
    return table


def check_reading(header: object, on_bad_rows: object) -> None:
    """Check the options `header` and `on_bad_rows`."""
    if not isinstance(header, bool) and header != "auto":
        raise InputError(f"header={header!r}: use true, false or auto")
    if on_bad_rows not in ("error", "skip"):
        raise InputError(f"on_bad_rows={on_bad_rows!r}: use error or skip")


def read_splits(path: str | Path, **columns: Any) -> dict[str, Table]:
    """Read the table of every split, see `split_files`."""
    return {split: read_table(file, **columns) for split, file in split_files(path).items()}


def split_files(path: str | Path) -> dict[str, Path]:
    """Return the files of the splits in a folder, see `SPLITS`; a single file is the training split."""
    root = resolve_path(path, "data")
    if not root.is_dir():
        return {"train": root}
    split_of = {name: split for split, names in SPLITS.items() for name in names}
    files: dict[str, Path] = {}
    for file in sorted(root.iterdir()):
        split = split_of.get(file.name.split(".")[0])
        if split is None or data_suffix(file) not in FORMATS or not file.is_file():
            continue
        if split in files:
            raise InputError(f"{root}: {files[split].name} and {file.name} are both {split} files; keep one", code="conflict")
        files[split] = file
    if "train" not in files:
        raise InputError(f"{root}: no training file, such as train.tsv; the folder has {list_names(root)}", code="missing")
    return {split: files[split] for split in SPLITS if split in files}


def read_pairs(source: Path, target: Path) -> Table:
    """Read two parallel files of UTF-8 lines, plain or compressed; only a line feed ends a line."""
    if source.samefile(target):
        raise InputError(f"{source}: source and target are the same file; use two files", code="conflict")
    stores = [Store.cached(_line_batches(path), path, "lines", CACHE_VERSION) for path in (source, target)]
    first, second = (TextColumn(store, "text") for store in stores)
    if len(first) != len(second):
        lengths = f"{source}: {len(first)} lines, but {target}: {len(second)}"
        raise DataError(f"{lengths}; line i of one must be the translation of line i of the other")
    return Table((first, second), source=str(source), files=(str(source), str(target)))


def _line_batches(path: Path) -> Iterator[Any]:
    lines, number = read_lines(path), 0
    while chunk := list(islice(lines, BATCH_ROWS)):
        for number, line in chunk:
            if not line.strip():
                raise DataError(f"{path}:{number}: an empty line; fill it, or remove it from both files")
        yield pa.record_batch({"text": pa.array([line for _, line in chunk], pa.string())})
    if not number:
        raise DataError(f"{path}: the file is empty; expected one text per line")


def _record_batches(rows: Iterator[Row], columns: ColumnKeys, bad: BadRows) -> Iterator[Any]:
    """Yield the valid rows as record batches, with a column of line numbers if the file has lines."""
    clean, valid = _row_cleaner(columns, bad.path), []
    for number, row in enumerate(rows, 1):
        values = list(row.values)
        if problem := row.problem or clean(values, row.line, number):
            bad.add(row.line, number, problem)
        else:
            valid.append((*values, row.line))
        if len(valid) == BATCH_ROWS:
            yield _record_batch(valid, columns)
            valid = []
    if valid:
        yield _record_batch(valid, columns)
    bad.finish()


def _record_batch(rows: list[tuple[Any, ...]], columns: ColumnKeys) -> Any:
    *values, lines = zip(*rows, strict=True)
    arrays = {option: pa.array(column, pa.string()) for option, column in zip(columns, values, strict=True)}
    return pa.record_batch(arrays if lines[0] is None else {**arrays, "line": pa.array(lines, pa.int32())})


def _row_cleaner(columns: ColumnKeys, path: Path) -> Callable[[list[Any], int | None, int], str]:
    """Return a function that turns labels and groups into text in place, and returns why a row is broken, if it is."""
    first: list[Any] = []  # the first label and its location: all labels must have its type, since 1 and "1" may differ

    def clean(values: list[Any], line: int | None, number: int) -> str:
        for i, (option, column) in enumerate(columns.items()):
            value = values[i]
            if option not in ("label", "group"):
                if problem := _text_problem(value, column):
                    return problem
                continue
            if option == "label" and isinstance(value, float) and value.is_integer():
                value = int(value)
            if type(value) not in LABEL_TYPES:
                return f"{option} is {_quote(value)}; expected text or a whole number"
            if option == "label":
                first[:] = first or [value, line, number]
                if type(value) is not type(first[0]):
                    types = f"{_quote(value)} is {LABEL_TYPES[type(value)]}, but {_quote(first[0])}"
                    first_location = location(path, *first[1:])
                    return f"label {types} ({first_location}) is {LABEL_TYPES[type(first[0])]}; use one type for all labels"
            values[i] = str(value).lower() if isinstance(value, bool) else str(value).strip()
            if not values[i]:
                return f"empty {option}"
        return ""

    return clean


def _text_problem(value: Any, column: ColumnKey) -> str:
    if not isinstance(value, str):
        return f"column {column!r} is {_quote(value)}, not text"
    if not value.strip():
        return f"empty text in column {column!r}; fill it, or remove the row"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return f"column {column!r} contains a lone surrogate; save it as UTF-8"
    return ""


def _quote(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"


def _line_numbers(store: Store) -> Any:
    """Return the line of every row, as a range if possible; None for a file without lines."""
    if "line" not in store.batches[0].schema.names:
        return None
    numbers = np.concatenate([batch.column("line").to_numpy() for batch in store.batches])
    first, last = int(numbers[0]), int(numbers[-1])
    return range(first, last + 1) if last - first == len(numbers) - 1 else numbers


def _check_forgotten_header(table: Table) -> None:
    """Raise if the first row looks like a header: its label is unique, while all other labels repeat."""
    counts = np.bincount(table.labels.codes)
    cells = [*(column[0] for column in table.texts), table.labels[0]]
    if len(counts) < 2 or counts[0] > 1 or counts[1:].min() < 2:
        return
    if all(re.fullmatch(r"[^\W\d][\w.-]{0,30}", cell.strip()) for cell in cells):
        reason = f"no other row has the label {cells[-1]!r}, so this looks like a header"
        raise DataError(f"{table.location(0)}: {reason}; use header=true, or header=false if it is a row")
