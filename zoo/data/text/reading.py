"""Tables from files: TSV, CSV, JSON lines and Parquet, plain or packed; every error names file and line."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from zoo.data.sources import existing, listing
from zoo.data.text.columns import CHUNK, Column, file_key, stored
from zoo.data.text.files import base_suffix, lines
from zoo.data.text.formats import FORMATS, Row, Wanted, column_names, is_header, rows
from zoo.data.text.formats import Column as Place
from zoo.data.text.table import Labels, Rows, Table
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
    """
    pair = ("first", "second") if group is None else ("query", "answer")  # as their presets call them
    texts = {"text": text} if text is not None else dict(zip(pair, (first, second), strict=True))
    if None in texts.values() or (text is not None and (first, second) != (None, None)):
        raise InputError("give the column text, or for pairs the columns first and second")
    check_header(header)
    place = existing(path, "data file")
    wanted = {option: column for option, column in {**texts, "label": label, "group": group}.items() if column is not None}
    if group in texts.values():  # the question itself may be what tells questions apart
        del wanted["group"]
    options = {column: option for option, column in wanted.items()}
    found = _batches(rows(place, wanted, header), place, wanted)
    store = stored(found, partial(file_key, place, *wanted.items(), header, RULE))
    if not store.starts[-1]:
        raise InputError(f"{place}: no rows; a header alone is not enough")
    labels = Labels.of(batch.column("label").to_pylist() for batch in store.batches)
    table = Table(
        tuple(Column(store, option) for option in texts),
        labels,
        None if group is None else Column(store, options[group]),
        str(place),
        _lines(store.batches) if "line" in store.batches[0].schema.names else None,
    )
    if header == "auto" and base_suffix(place) in (".tsv", ".csv") and not is_header(column_names(place), wanted, header):
        _check_first(table)
    return table


def check_header(header: object) -> None:
    """Refuse a `header` that is neither true, false nor auto."""
    if not isinstance(header, bool) and header != "auto":
        raise InputError(f"header={header!r}: use true, false or auto")


def read_splits(path: str | Path, **columns: Any) -> dict[str, Table]:
    """Read a file, or a folder of train.*, and if they are there val.* (dev.*, valid.*, validation.*) and test.*."""
    place = existing(path, "data")
    if not place.is_dir():
        return {"train": read_table(place, **columns)}
    split_of = {name: split for split, names in SPLITS.items() for name in names}
    files: dict[str, Path] = {}
    for file in sorted(place.iterdir()):
        split = split_of.get(file.name.split(".")[0])
        if split is None or base_suffix(file) not in FORMATS or not file.is_file():
            continue
        if split in files:
            raise InputError(f"{place}: both {files[split].name} and {file.name} would be the {split} split; keep one")
        files[split] = file
    if "train" not in files:
        raise InputError(f"{place}: no training file, such as train.tsv; there is {listing(place)}")
    return {split: read_table(files[split], **columns) for split in SPLITS if split in files}


def read_pairs(source: Path, target: Path) -> Table:
    r"""Read two files of UTF-8 lines, plain or packed (.gz, .xz); a line ends at a line feed and nowhere else."""
    if source.exists() and target.exists() and source.samefile(target):
        raise InputError(f"{source}: one file for both sides; give the file of the sources and that of the targets")
    columns = []
    for path in (source, target):
        store = stored(_line_batches(path), partial(file_key, path, "lines", RULE))
        if not store.starts[-1]:
            raise InputError(f"{path}: the file is empty; one text on every line is needed")
        columns.append(Column(store, "text"))
    if len(columns[0]) != len(columns[1]):
        counts = f"{source}: {len(columns[0])} lines, but {target}: {len(columns[1])}"
        raise InputError(f"{counts}; line i of one belongs to line i of the other")
    return Table(tuple(columns), source=str(source), files=(str(source), str(target)))


def _line_batches(path: Path) -> Iterator[Any]:
    found = lines(path)
    while some := list(islice(found, CHUNK)):
        texts = [line for _, line in some]
        if not all(map(str.strip, texts)):
            number = next(number for number, line in some if not line.strip())
            raise InputError(f"{path}:{number}: an empty line; take this line out of both files, or write something")
        yield pa.record_batch({"text": pa.array(texts, pa.string())})


def _batches(found: Iterator[Row], path: Path, wanted: Wanted) -> Iterator[Any]:
    """Yield checked rows as record batches, with the line of every row if the file has lines."""
    done, first = 0, None
    while some := list(islice(found, CHUNK)):
        numbers, values = zip(*some, strict=True)

        def location(row: int, numbers: Any = numbers, done: int = done) -> str:
            return f"{path}, row {done + row + 1}" if numbers[row] is None else f"{path}:{numbers[row]}"

        columns: dict[str, list[Any]] = dict(zip(wanted, map(list, zip(*values, strict=True)), strict=True))
        columns["label"] = [int(v) if isinstance(v, float) and v.is_integer() else v for v in columns["label"]]
        first = (columns["label"][0], location(0)) if first is None else first
        _check_labels(columns["label"], first, location)
        arrays = {}
        for option, column in columns.items():
            named = option in ("label", "group")
            arrays[option] = _names(column, option, location) if named else _texts(column, wanted[option], location)
        if numbers[0] is not None:
            arrays["line"] = pa.array(numbers, pa.int32())
        yield pa.record_batch(arrays)
        done += len(some)


def _texts(values: list[Any], column: Place, location: Callable[[int], str]) -> Any:
    """Return texts as an Arrow array."""
    try:
        if all(map(str.strip, values)):
            return pa.array(values, pa.string())
    except (TypeError, UnicodeEncodeError):  # the row is found below
        pass
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{location(row)}: column {column!r} is {_shown(value)}, not text")
        if not value.strip():
            raise InputError(f"{location(row)}: empty text in column {column!r}; leave the row out or write something")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InputError(f"{location(row)}: column {column!r} holds half a character (a lone surrogate); write it as UTF-8")
    raise AssertionError("no wrong text")


def _check_labels(values: list[Any], first: tuple[Any, str], location: Callable[[int], str]) -> None:
    """Refuse labels of several kinds, since 1 and "1" may or may not mean the same."""
    if set(map(type, values)) == {type(first[0])} <= TYPES.keys():
        return
    for row, value in enumerate(values):
        if type(value) not in TYPES:
            raise InputError(f"{location(row)}: label is {_shown(value)}; it must be text or a whole number")
        if type(value) is not type(first[0]):
            kinds = f"{_shown(value)} is {TYPES[type(value)]}, but {_shown(first[0])} ({first[1]})"
            raise InputError(f"{location(row)}: label {kinds} is {TYPES[type(first[0])]}; write all labels alike")


def _names(values: list[Any], option: str, location: Callable[[int], str]) -> Any:
    """Return labels, or the names of groups, as an Arrow array of texts."""
    for row, value in enumerate(values):
        if not isinstance(value, str | int):
            raise InputError(f"{location(row)}: {option} is {_shown(value)}; it must be text or a whole number")
        values[row] = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if not values[row]:
            raise InputError(f"{location(row)}: empty {option}")
    return pa.array(values, pa.string())


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
        raise InputError(f"{table.location(0)}: {reason}: use header=true, or header=false if it is a row")
