"""Tables from files: TSV, CSV, JSON lines and Parquet, plain or packed; every error names file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.data.sources import existing
from zoo.data.text.cells import Cells, Column, Wanted
from zoo.data.text.columns import table_of
from zoo.data.text.content import base_suffix
from zoo.data.text.delimited import csv_, tsv
from zoo.data.text.records import jsonl, parquet
from zoo.data.text.table import Table
from zoo.errors import InputError

SPLITS = {"train": "train", "val": "val", "dev": "val", "valid": "val", "validation": "val", "test": "test"}
"""The names of files in a folder, and the splits they hold."""

FORMATS = (".csv", ".jsonl", ".parquet", ".tsv")


def read_table(
    path: str | Path,
    *,
    text: Column | None = None,
    first: Column | None = None,
    second: Column | None = None,
    label: Column = "label",
    group: Column | None = None,
    header: bool | str = "auto",
) -> Table:
    r"""Read one file of labelled texts, or of pairs.

    Columns are given by name or by number, from 0 on. The ending of the file says what it is: .tsv (quotes are plain
    characters, lines end at a line feed and nowhere else), .csv, .jsonl (one object per line) or .parquet; .gz and .xz are
    unpacked.

    Args:
        path: The file; UTF-8.
        text: The column of the text; for pairs give `first` and `second` instead.
        first: The column of the first text of a pair.
        second: The column of the second.
        label: The column of the label.
        group: The column that tells the questions of a ranking apart.
        header: Whether the first line of a TSV or CSV file names the columns. `auto`: it does if a column is given by name,
            or if it has the word label in the column of labels.

    Raises:
        InputError: The file, a line or a column is missing or wrong; the message says where.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "reviews.tsv")
        >>> _ = file.write_text("pos\tA good film\nneg\tA bad film\n")
        >>> read_table(file, text=1, label=0).texts
        (['A good film', 'A bad film'],)
    """
    texts = {"text": text} if text is not None else {"first": first, "second": second}
    if None in texts.values() or (text is not None and (first, second) != (None, None)):
        raise InputError("give the column text, or for pairs the columns first and second")
    if not isinstance(header, bool) and header != "auto":
        raise InputError(f"header={header!r}: use true, false or auto")
    place = existing(path, "data file")
    wanted = {option: column for option, column in {**texts, "label": label, "group": group}.items() if column is not None}
    return table_of(_cells(place, wanted, header), list(texts))


def read_splits(path: str | Path, **columns: Any) -> dict[str, Table]:
    """Read a file, or a folder of train.*, and if they are there val.* (dev.*, valid.*, validation.*) and test.*.

    Args:
        path: The file, which becomes the training split, or the folder.
        columns: See `read_table`.

    Raises:
        InputError: See `read_table`; or a folder has no training file, or two files for one split.
    """
    place = existing(path, "data")
    if not place.is_dir():
        return {"train": read_table(place, **columns)}
    files: dict[str, Path] = {}
    for file in sorted(place.iterdir()):
        split = SPLITS.get(file.name.split(".")[0])
        if split is None or base_suffix(file) not in FORMATS or not file.is_file():
            continue
        if split in files:
            raise InputError(f"{place}: both {files[split].name} and {file.name} would be the {split} split; keep one")
        files[split] = file
    if "train" not in files:
        there = ", ".join(sorted(file.name for file in place.iterdir())[:8]) or "nothing"
        raise InputError(f"{place}: no training file, such as train.tsv; there is {there}")
    return {split: read_table(files[split], **columns) for split in ("train", "val", "test") if split in files}


def _cells(path: Path, wanted: Wanted, header: bool | str) -> Cells:
    """Read the wanted columns of a file of any format."""
    suffix = base_suffix(path)
    if suffix in (".tsv", ".csv"):
        return (tsv if suffix == ".tsv" else csv_)(path, wanted, header)
    if suffix in (".jsonl", ".parquet"):
        return (jsonl if suffix == ".jsonl" else parquet)(path, wanted)
    raise InputError(f"{path}: unknown kind of file; use {', '.join(FORMATS)}, plain or packed as .gz or .xz")
