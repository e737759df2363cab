"""Local copies of published text sets: finding their files and knowing their columns."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.data.sources import existing
from zoo.data.text.content import base_suffix
from zoo.data.text.files import FORMATS, read_table
from zoo.data.text.hub import labelled
from zoo.data.text.record import TextSet
from zoo.data.text.table import Table
from zoo.errors import InputError

FILES = {"train": ("train",), "val": ("dev", "val", "valid", "validation"), "test": ("test",)}
OPEN: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_copy(record: TextSet, path: str | Path) -> dict[str, Table]:
    """Read a local copy of a set: a file, which has no splits, or a folder.

    A test file without labels is passed over. If that is how the set was published, the validation rows take its place. A
    folder without training rows is a small set of its own, trained on what it has: its validation rows.

    Raises:
        InputError: There are no such files, they have other columns, or a row is wrong; the message says where.
    """
    place = existing(path, record.name)
    files = {"train": place} if place.is_file() else _files(record, place)
    found = {split: table for split, file in files.items() if (table := _read(record, file, split)) is not None}
    if "train" not in found:
        found["train"] = found.pop("val")
    elif record.hidden and "test" not in found and "val" in found:
        found["test"] = found.pop("val")
    return _folded(found) if record.task == "text_classification" else found


def _files(record: TextSet, folder: Path) -> dict[str, Path]:
    """Find the file of every split there is; the set's own names come before the general ones."""
    stems: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.is_file() and base_suffix(file) in FORMATS:
            stem = _stem(file)
            if stem in stems:
                raise InputError(f"{record.name}: {folder} holds both {stems[stem].name} and {file.name}; keep one")
            stems[stem] = file
    files = {}
    for split, general in FILES.items():
        wanted = (*record.files.get(split, ()), *general, *([record.name] if split == "train" else []))
        if stem := next((name for name in wanted if name in stems), ""):
            files[split] = stems[stem]
    if not {"train", "val"} & set(files):
        own = record.files.get("train", ("train",))[0]
        there = ", ".join(file.name for file in sorted(folder.iterdir())[:8]) or "nothing"
        raise InputError(f"{record.name}: {folder} has no training file, such as {own}.tsv; there is {there}")
    return files


def _stem(file: Path) -> str:
    """Return the name of a file without the endings of its packing and its format."""
    return (file.with_suffix("") if file.suffix.lower() in OPEN else file).stem


def _read(record: TextSet, file: Path, split: str) -> Table | None:
    """Read one file by the first layout that fits; None if it is a test file without labels."""
    names = column_names(file)
    named = [layout for layout in record.columns if isinstance(layout.label, str)]
    layout = next((layout for layout in named if set(layout.all) <= set(names)), None)
    if layout is None and split == "test" and any(set(layout.texts) <= set(names) for layout in named):
        return None
    if layout is None and base_suffix(file) in (".tsv", ".csv"):
        layout = next((bare for bare in record.columns if bare.width == len(names)), None)
    if layout is None:
        raise _other_columns(record, file, names)
    texts = dict(zip(("text",) if len(layout.texts) == 1 else ("first", "second"), layout.texts, strict=True))
    header = isinstance(layout.label, str)
    table = labelled(read_table(file, **texts, label=layout.label, group=layout.group, header=header))
    if not len(table) and split != "test":
        raise InputError(f"{file}: no row has a label")
    return table if len(table) else None


def _other_columns(record: TextSet, file: Path, names: Sequence[str]) -> InputError:
    wanted = [", ".join(map(str, layout.all)) for layout in record.columns if layout.width is None]
    bare = [f"{layout.width} columns without a header" for layout in record.columns if layout.width is not None]
    there = ", ".join(name[:20] for name in names[:8]) or "none at all"
    return InputError(f"{file}: {record.name} needs the columns {', or '.join(wanted + bare)}; there is {there}")


def column_names(file: Path) -> list[str]:
    """Return the names of a file's columns; of TSV and CSV the fields of the first line, whether or not they are names.

    Raises:
        InputError: The file cannot be read.
    """
    suffix = base_suffix(file)
    try:
        if suffix == ".parquet":
            import pyarrow.parquet as pq  # type: ignore[import-untyped]

            return list(pq.read_schema(file).names)
        with OPEN.get(file.suffix.lower(), open)(file, "rt", encoding="utf-8-sig", errors="replace", newline="\n") as stream:
            first = stream.readline().rstrip("\r\n")
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise InputError(f"{file}: cannot be read ({error}); is the file whole, and of the kind its name says?") from error
    if suffix == ".jsonl":
        return _keys(first)
    fields = next(csv.reader([first]), []) if suffix == ".csv" else first.split("\t")
    return [field.strip() for field in fields]


def _keys(line: str) -> list[str]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    return list(map(str, record)) if isinstance(record, dict) else []


def _folded(found: dict[str, Table]) -> dict[str, Table]:
    """Split the training rows by their fold, where they name one: rows of the fold `val` are to validate on."""
    train = found["train"]
    if train.groups is not None and "val" not in found:
        chosen = [group == "val" for group in train.groups]
        if any(chosen) and not all(chosen):
            found["train"] = train.take([row for row, held in enumerate(chosen) if not held])
            found["val"] = train.take([row for row, held in enumerate(chosen) if held])
    return {split: replace(table, groups=None) for split, table in found.items()}
