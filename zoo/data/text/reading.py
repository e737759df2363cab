"""Tables from files: TSV, CSV, JSON lines and Parquet, plain or packed; every error names file and line."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zoo.data.options import DataError, existing, listing
from zoo.data.text.files import base_suffix, lines
from zoo.data.text.formats import FORMATS, BadRows, Row, Wanted, column_names, is_header, location, rows
from zoo.data.text.formats import Column as Place
from zoo.data.text.table import CHUNK, Column, Labels, Rows, Table, stored
from zoo.errors import InputError

SPLITS = {"train": ("train",), "val": ("val", "dev", "valid", "validation"), "test": ("test",)}
"""What the files of a split are called, endings aside."""

TYPES = {str: "text", bool: "true or false", int: "a whole number"}

RULE = 1  # number of the way in which files become tables; a new one makes new files in the cache


def read_table(
    path: str | Path,
    *,
    text: Place | None = None,
    first: Place | None = None,
    second: Place | None = None,
    label: Place = "label",
    group: Place | None = None,
    header: bool | str = "auto",
    on_bad_rows: str = "error",
) -> Table:
    r"""Read one file of labelled texts, or of pairs; what is larger than 8 MiB stays in a mapped file of the user's cache.

    Columns are given by name or by number, from 0 on. The ending of the file says what it is: .tsv (quotes are plain
    characters, lines end at a line feed and nowhere else), .csv, .jsonl (one object per line) or .parquet; .gz and .xz are
    unpacked. An `InputError` names file and line.

    Args:
        path: The file; UTF-8.
        text: The column of the text; for pairs give `first` and `second` instead.
        first: The column of the first text of a pair.
        second: The column of the second.
        label: The column of the label.
        group: The column that tells the questions of a ranking apart.
        header: Whether the first line of a TSV or CSV file names the columns. `auto`: it does if a column is given by name,
            or if it has the word label in the column of labels.
        on_bad_rows: `error`, or `skip` to leave out the rows that cannot be used; `Table.skipped` counts them.
    """
    pair = ("first", "second") if group is None else ("query", "answer")  # as their presets call them
    texts = {"text": text} if text is not None else dict(zip(pair, (first, second), strict=True))
    check_reading(header, on_bad_rows)
    file = existing(path, "data file")
    wanted = {option: column for option, column in {**texts, "label": label, "group": group}.items() if column is not None}
    if group in texts.values():  # the question itself may be what tells questions apart
        del wanted["group"]
    bad = BadRows(file, on_bad_rows)
    batches = _batches(rows(file, wanted, header), wanted, bad)
    store = stored(batches, file, *wanted.items(), header, on_bad_rows, RULE)
    for _ in batches if on_bad_rows == "skip" else ():  # a cached table leaves rows unread; count those to skip all the same
        pass
    if not store.starts[-1]:
        raise DataError(f"{file}: no rows; a header alone is not enough")
    options = {column: option for option, column in wanted.items()}
    table = Table(
        tuple(Column(store, option) for option in texts),
        Labels.of(batch.column("label").to_pylist() for batch in store.batches),
        None if group is None else Column(store, options[group]),
        str(file),
        _lines(store.batches) if "line" in store.batches[0].schema.names else None,
        skipped=bad.count,
    )
    if header == "auto" and base_suffix(file) in (".tsv", ".csv") and not is_header(column_names(file), wanted, header):
        _check_first(table)
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
    """Return a file as the training split, or the files train.*, val.* (dev.*, valid.*, validation.*), test.* of a folder."""
    root = existing(path, "data")
    if not root.is_dir():
        return {"train": root}
    split_of = {name: split for split, names in SPLITS.items() for name in names}
    files: dict[str, Path] = {}
    for file in sorted(root.iterdir()):
        split = split_of.get(file.name.split(".")[0])
        if split is None or base_suffix(file) not in FORMATS or not file.is_file():
            continue
        if split in files:
            both = f"{files[split].name} and {file.name}"
            raise InputError(f"{root}: both {both} would be the {split} split; keep one", code="conflict")
        files[split] = file
    if "train" not in files:
        raise InputError(f"{root}: no training file, such as train.tsv; there is {listing(root)}", code="missing")
    return {split: files[split] for split in SPLITS if split in files}


def read_pairs(source: Path, target: Path) -> Table:
    r"""Read two files of UTF-8 lines, plain or packed (.gz, .xz); a line ends at a line feed and nowhere else."""
    if source.samefile(target):
        both = "one file for both sides; give the file of the sources and that of the targets"
        raise InputError(f"{source}: {both}", code="conflict")
    first, second = (Column(stored(_line_batches(path), path, "lines", RULE), "text") for path in (source, target))
    if len(first) != len(second):
        counts = f"{source}: {len(first)} lines, but {target}: {len(second)}"
        raise DataError(f"{counts}; line i of one belongs to line i of the other")
    return Table((first, second), source=str(source), files=(str(source), str(target)))


def _line_batches(path: Path) -> Iterator[Any]:
    numbered, number = lines(path), 0
    while chunk := list(islice(numbered, CHUNK)):
        for number, line in chunk:
            if not line.strip():
                empty = "an empty line; take this line out of both files, or write something"
                raise DataError(f"{path}:{number}: {empty}")
        yield pa.record_batch({"text": pa.array([line for _, line in chunk], pa.string())})
    if not number:
        raise DataError(f"{path}: the file is empty; one text on every line is needed")


def _batches(rows: Iterator[Row], wanted: Wanted, bad: BadRows) -> Iterator[Any]:
    """Yield checked rows as record batches, with the line of every row if the file has lines."""
    check, good = row_check(wanted, bad.path), []
    for number, row in enumerate(rows, 1):
        values = list(row.values)
        if problem := row.problem or check(values, row.line, number):
            bad.add(row.line, number, problem)
        else:
            good.append((*values, row.line))
        if len(good) == CHUNK:
            yield _record_batch(good, wanted)
            good = []
    if good:
        yield _record_batch(good, wanted)
    bad.finish()


def _record_batch(rows: list[tuple[Any, ...]], wanted: Wanted) -> Any:
    *columns, line = zip(*rows, strict=True)
    arrays = {option: pa.array(column, pa.string()) for option, column in zip(wanted, columns, strict=True)}
    return pa.record_batch(arrays if line[0] is None else {**arrays, "line": pa.array(line, pa.int32())})


def row_check(wanted: Wanted, path: Path) -> Callable[[list[Any], int | None, int], str]:
    """Return a function that turns labels and groups into text in place, and says why a row cannot be used, if it cannot."""
    first: list[Any] = []  # the first label and its place: 1 and "1" may or may not mean the same, so all are of one type

    def check(values: list[Any], line: int | None, number: int) -> str:
        for i, (option, column) in enumerate(wanted.items()):
            value = values[i]
            if option not in ("label", "group"):
                if problem := _text_problem(value, column):
                    return problem
                continue
            if option == "label" and isinstance(value, float) and value.is_integer():
                value = int(value)
            if type(value) not in TYPES:
                return f"{option} is {_shown(value)}; it must be text or a whole number"
            if option == "label":
                first[:] = first or [value, line, number]
                if type(value) is not type(first[0]):
                    kinds = f"{_shown(value)} is {TYPES[type(value)]}, but {_shown(first[0])} ({location(path, *first[1:])})"
                    return f"label {kinds} is {TYPES[type(first[0])]}; write all labels alike"
            values[i] = str(value).lower() if isinstance(value, bool) else str(value).strip()
            if not values[i]:
                return f"empty {option}"
        return ""

    return check


def _text_problem(value: Any, column: Place) -> str:
    if not isinstance(value, str):
        return f"column {column!r} is {_shown(value)}, not text"
    if not value.strip():
        return f"empty text in column {column!r}; leave the row out or write something"
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        return f"column {column!r} holds half a character (a lone surrogate); write it as UTF-8"
    return ""


def _shown(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"


def _lines(batches: Sequence[Any]) -> Rows:
    """Return the line of every row: a range if no line is left out."""
    numbers = np.concatenate([batch.column("line").to_numpy() for batch in batches])
    first, last = int(numbers[0]), int(numbers[-1])
    return range(first, last + 1) if last - first == len(numbers) - 1 else numbers


def _check_first(table: Table) -> None:
    """Refuse a first row that looks like a header: its label is no other row's, those of the others recur."""
    counts = np.bincount(table.labels.codes)
    cells = [*(column[0] for column in table.texts), table.labels[0]]
    if len(counts) < 2 or counts[0] > 1 or counts[1:].min() < 2:
        return
    if all(re.fullmatch(r"[^\W\d][\w.-]{0,30}", cell.strip()) for cell in cells):
        reason = f"{cells[-1]!r} is the label of this row alone, which looks like a header"
        raise DataError(f"{table.location(0)}: {reason}: use header=true, or header=false if it is a row")
