"""Read TSV, CSV, JSON lines and Parquet files, plain or compressed, into tables; every error names file and line."""

import sys
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.data.options import DataError, find_file, list_names, resolve_path
from zoo.data.text.files import read_lines
from zoo.data.text.formats import ENDINGS, BadRows, ColumnKey, column_names, iter_rows
from zoo.data.text.table import Table
from zoo.errors import InputError

SPLITS = {"train": ("train",), "val": ("val", "dev", "valid", "validation"), "test": ("test",)}
"""File names of the splits, without extensions."""

LABEL_WORDS = {"label", "labels", "class", "category", "target"}
"""The first line is a header if the label column starts with one of these words."""


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
    """Read a file of labelled texts or pairs.

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
    if not isinstance(header, bool) and header != "auto":
        raise InputError(f"header={header!r}: use true, false or auto")
    file = resolve_path(path, "data file")
    texts = [text] if text is not None else [column for column in (first, second) if column is not None]
    columns = [*texts, label, *([] if group is None or group in texts else [group])]
    if header == "auto":
        is_named = any(isinstance(column, str) for column in columns)
        header = is_named or dict(enumerate(column_names(file))).get(int(label), "").lower() in LABEL_WORDS
    hint = "; give the names of the columns, or their numbers from 0, in the data spec"
    bad, lines = BadRows(file, on_bad_rows), array("i")
    values: list[list[str]] = [[] for _ in columns]
    for number, row in enumerate(iter_rows(file, columns, bool(header), hint), 1):
        cells = [*row.values[: len(texts)], *map(_label_text, row.values[len(texts) :])]
        if problem := row.problem or next(filter(None, map(_problem, cells, columns)), ""):
            bad.add(row.line, number, problem)
            continue
        for column, cell in zip(values, cells, strict=True):
            column.append(cell)
        if row.line is not None:
            lines.append(row.line)
    bad.finish()
    if not values[0]:
        raise DataError(f"{file}: no rows; expected at least one besides a header")
    groups = None if group is None else values[columns.index(group)]
    return Table(tuple(values[: len(texts)]), values[len(texts)], groups, str(file), lines or None, skipped=bad.count)


def _label_text(value: Any) -> Any:
    """Return a label or group as text if it is text, a whole number, true or false."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (str, int)):
        return sys.intern(str(value).lower() if isinstance(value, bool) else str(value).strip())
    return value


def _problem(value: Any, column: ColumnKey) -> str:
    """Return why a cell is broken, if it is."""
    if not isinstance(value, str):
        return f"column {column!r} is {'missing' if value is None else f'{value!r:.40}'}; expected text"
    if not value.strip():
        return f"column {column!r} is empty; fill it, or remove the row"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return f"column {column!r} contains a lone surrogate; save it as UTF-8"
    return ""


def read_splits(path: str | Path, **columns: Any) -> dict[str, Table]:
    """Read the table of every split, see `split_files`."""
    return {split: read_table(file, **columns) for split, file in split_files("data", path).items()}


def split_files(
    preset: str,
    path: str | Path,
    endings: Sequence[str] = ENDINGS,
    names: Mapping[str, Sequence[str]] = {},
    trained: Sequence[str] = ("train",),
) -> dict[str, Path]:
    """Return the files of the splits in a folder; a single file is the training split.

    Args:
        preset: Name of the preset, for messages.
        path: The folder or file.
        endings: Possible file extensions.
        names: Further file names of each split without extensions, which have precedence over those in `SPLITS`.
        trained: The splits of which the folder must have one.
    """
    root = resolve_path(path, preset)
    if root.is_file():
        return {"train": root}
    files = {}
    for split, general in SPLITS.items():
        for stems in (names.get(split, ()), general):
            if file := find_file(preset, root, [f"{stem}{ending}" for stem in stems for ending in endings]):
                files[split] = file
                break
    if not any(split in files for split in trained):
        example = f"{(*names.get('train', ()), *SPLITS['train'])[0]}{endings[0]}"
        raise InputError(f"{preset}: {root} has no file {example}; the folder has {list_names(root)}", code="missing")
    return files


def read_pairs(*paths: str | Path) -> Table:
    """Read two parallel files of UTF-8 lines, plain or compressed; only a line feed ends a line."""
    source, target = (resolve_path(path, "parallel") for path in paths)
    if source.samefile(target):
        raise InputError(f"{source}: source and target are the same file; use two files", code="conflict")
    first, second = ([line.removesuffix("\n").removesuffix("\r") for line in read_lines(path)] for path in (source, target))
    if len(first) != len(second):
        lengths = f"{source}: {len(first)} lines, but {target}: {len(second)}"
        raise DataError(f"{lengths}; line i of one must be the translation of line i of the other")
    table = Table((first, second), source=str(source), files=(str(source), str(target)))
    for side, column in enumerate(table.texts):
        for row, text in enumerate(column):
            if not text.strip():
                raise DataError(f"{table.location(row, side)}: an empty line; fill it, or remove it from both files")
    return table
