"""Published sets of labeled texts and of pairs of texts: records, and how to read them from the Hub or a local copy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from zoo.data.files import ENDINGS, column_names, data_suffix
from zoo.data.options import DataError, OptionalPath, quote_few
from zoo.data.parallel import ParallelData, Sides, read_folder
from zoo.data.table import Table, read_table, split_files
from zoo.data.text import TextData
from zoo.errors import InputError
from zoo.registry import passes_options_to
from zoo_datasets.hub import attach_record, hub_columns

RIGHT = ("1", "true", "relevant")  # labels of right answers
UNLABELLED = frozenset({"-1", "-", "", "None"})  # labels of rows without agreement, or with a secret label
TRAIN_TEST = {"train": ("train",), "test": ("test",)}
OFFICIAL = {"train": ("train",), "val": ("validation",), "test": ("test",)}
HIDDEN = {"train": ("train",), "test": ("validation",)}
"""Splits if the labels of the official test split are secret: the validation split is for testing."""


@dataclass(frozen=True)
class Layout:
    """The columns of a table to read, by name or by number."""

    texts: tuple[str | int, ...]  # one or two
    label: str | int
    group: str | int | None = None  # identifies the question of a ranking, or the split of a row

    @property
    def all(self) -> tuple[str | int, ...]:
        """All columns."""
        return (*self.texts, self.label, *(() if self.group is None else (self.group,)))

    @property
    def names(self) -> list[str]:
        """The names of the columns in a `Table`."""
        texts = ["text"] if len(self.texts) == 1 else ["first", "second"]
        return [*texts, "label", "group"][: len(self.all)]

    @property
    def width(self) -> int | None:
        """Number of columns of a file without a header; None if the columns have names."""
        return None if isinstance(self.label, str) else 1 + max(column for column in self.all if isinstance(column, int))


TEXT, SENTENCE, BARE = Layout(("text",), "label"), Layout(("sentence",), "label"), Layout((1,), 0)


@dataclass(frozen=True)
class TextSet:
    """One published set of labeled texts."""

    name: str
    repository: str  # on the Hub and, after an @, its commit; or a branch if none is known, so that only `rows` detects changes
    splits: Mapping[str, tuple[str, ...]]  # the Hub's splits that make up each split; several are concatenated
    rows: Mapping[str, int] = field(default_factory=dict)  # of the Hub's splits, unlabeled ones included
    config: str | None = None  # of the repository
    hub: Layout = TEXT
    columns: tuple[Layout, ...] = (TEXT, SENTENCE, BARE)  # of local files; the first that match are read
    names: Mapping[str, str] | None = None  # of each label as written in the data
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names of local files, in addition to `SPLITS`
    # An option of the preset, and the changes to the record for each value; the first value is the default.
    variants: tuple[str, Mapping[Any, Mapping[str, Any]]] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of `TextData`

    @property
    def task(self) -> str:
        """The task for the columns."""
        if len(self.hub.texts) == 1:
            return "text_classification"
        return "pair_classification" if self.hub.group is None else "answer_ranking"

    def variant(self, value: object) -> Self:
        """Return the record for a value of the option in `variants`."""
        assert self.variants is not None
        option, changes = self.variants
        if value not in changes:
            raise InputError(f"{self.name}: {option}={value!r}; use {', '.join(map(str, changes))}")
        return replace(self, variants=None, **changes[value])


def text_set(*fields: Any, **others: Any) -> Callable[..., TextData]:
    """Return the preset of a published set: `preset(path=None, ...)` reads a local copy, or downloads the set from the Hub.

    A local copy is a file, which is cut into folds, or a folder with train.*, and optionally dev.* (or val.*, validation.*) and
    test.*; as published, or as a TSV, CSV, JSON lines or Parquet table, plain or compressed (.gz, .xz).
    The arguments are the fields of `TextSet`, which is the attribute `record` of the preset.
    """
    text_set = TextSet(*fields, **others)
    option, values = text_set.variants or ("", {})
    variants = {option: next(iter(values))} if option else {}

    @passes_options_to(TextData, **variants, **text_set.defaults)
    def preset(path: OptionalPath = None, **options: Any) -> TextData:
        chosen: TextSet = preset.record  # type: ignore[attr-defined]
        chosen = chosen.variant(options.pop(option)) if option else chosen
        return TextData(partial(read_text_set, chosen, path), chosen.task, names=chosen.names, **options)

    return attach_record(preset, text_set)


def read_text_set(record: TextSet, path: OptionalPath) -> dict[str, Table]:
    """Read a set from the Hub or a local copy, without the questions of a ranking that have no right answer."""
    splits = fetch_text_set(record) if path is None else read_copy(record, path)
    return {name: answerable(table) for name, table in splits.items()} if record.task == "answer_ranking" else splits


def fetch_text_set(record: TextSet) -> dict[str, Table]:
    """Load a set from the Hub or the cache of `datasets`, without rows that have no label or no text."""
    names, rows = [*map(str, record.hub.all)], {part: record.rows.get(part) for part in chain(*record.splits.values())}
    values = hub_columns(record.name, record.repository, rows, names, record.config)
    splits = {}
    for split, parts in record.splits.items():
        joined = (chain(*columns) for columns in zip(*(values[part] for part in parts), strict=True))
        cells = (["" if cell is None else str(cell) for cell in column] for column in joined)
        source = f"{record.repository.partition('@')[0]}, {' + '.join(parts)}"
        splits[split] = labeled_rows(Table(dict(zip(record.hub.names, cells, strict=True)), source))
    return splits


def labeled_rows(table: Table) -> Table:
    """Remove rows without a label or without a text."""
    rows = zip(table.labels, *table.texts, strict=True)
    return table.where([label not in UNLABELLED and all(map(str.strip, texts)) for label, *texts in rows])


def answerable(table: Table) -> Table:
    """Remove questions without a right answer, which no ranking can get right or wrong."""
    assert table.groups is not None
    right = {group for group, label in zip(table.groups, table.labels, strict=True) if label.lower() in RIGHT}
    if not right:
        raise DataError(f"{table.source}: no question has an answer with label 1")
    return table.where([group in right for group in table.groups])


def read_copy(record: TextSet, path: str | Path) -> dict[str, Table]:
    """Read a local copy of a set: a file without splits, or a folder."""
    names = {**record.files, "train": (*record.files.get("train", ()), record.name)}
    files = split_files(record.name, path, ENDINGS, names, trained=("train", "val"))
    tables = {split: table for split, file in files.items() if (table := _read(record, file, split)) is not None}
    if "train" not in tables:
        tables["train"] = tables.pop("val")
    elif record.splits == HIDDEN and "test" not in tables and "val" in tables:
        tables["test"] = tables.pop("val")
    return _split_by_group(tables) if record.task == "text_classification" else tables


def _read(record: TextSet, file: Path, split: str) -> Table | None:
    """Read a file with the first layout that matches; return None for a test file without labels."""
    names = column_names(file)
    named = [layout for layout in record.columns if layout.width is None]
    layout = next((layout for layout in named if set(layout.all) <= set(names)), None)
    if layout is None and split == "test" and any(set(layout.texts) <= set(names) for layout in named):
        return None
    if layout is None and data_suffix(file) in (".tsv", ".csv"):
        layout = next((bare for bare in record.columns if bare.width == len(names)), None)
    if layout is None:
        expected = ", or ".join(", ".join(map(str, layout.all)) for layout in record.columns)
        raise DataError(f"{file}: {record.name} needs the columns {expected}; the file has {quote_few(names) or 'no columns'}")
    columns: dict[str, Any] = dict(zip(layout.names, layout.all, strict=True))
    table = labeled_rows(read_table(file, **columns, header=layout.width is None))
    if not len(table) and split != "test":
        raise DataError(f"{file}: no row has a label")
    return table if len(table) else None


def _split_by_group(tables: dict[str, Table]) -> dict[str, Table]:
    """Move the training rows of the group `val` to the validation split if the groups of a classification name splits."""
    train = tables["train"]
    if train.groups is not None and "val" not in tables:
        is_val = np.array([group == "val" for group in train.groups])
        if is_val.any() and not is_val.all():
            tables["train"], tables["val"] = train.where(~is_val), train.where(is_val)
    columns = ("text", "label")
    return {split: replace(table, columns={name: table.columns[name] for name in columns}) for split, table in tables.items()}


HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class ParallelSet:
    """One published set of pairs."""

    name: str
    sides: Sides = ("en", "de")  # default source and target, which are file extensions
    stems: Mapping[str, Sequence[str]] = field(default_factory=dict)  # names of local files, in addition to `SPLITS`
    repository: str = ""  # on the Hub; its main branch is read, since no commit is known, and only `rows` detects changes
    nested: bool = False  # whether it has a configuration for each pair of languages, with both in the column `translation`
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # of the Hub's splits, by pair of languages
    untrained: bool = False  # whether a folder without training pairs trains on its validation pairs
    entities: bool = False  # whether to replace HTML entities in files
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of `ParallelData`


def parallel_set(**record: Any) -> Callable[..., ParallelData]:
    """Return the preset of a published set: `preset(path=None, source=..., target=..., ...)`.

    With `path` it reads a folder of parallel files NAME.SIDE, plain or compressed (.gz, .xz); without, it downloads the set.
    `source` and `target` are the sides, which are file extensions.
    The arguments are the fields of `ParallelSet`, which is the attribute `record` of the preset.
    """
    parallel_set = ParallelSet(**record)
    source, target = parallel_set.sides

    @passes_options_to(ParallelData, **parallel_set.defaults)
    def preset(path: OptionalPath = None, source: str = source, target: str = target, **options: Any) -> ParallelData:
        record = preset.record  # type: ignore[attr-defined]
        if path is None and not record.repository:
            advice = f"use {record.name}(path=FOLDER) with a folder of train.{source}, train.{target} and so on"
            raise InputError(f"{record.name}: no correct copy on the Hugging Face Hub is known; {advice}")
        return ParallelData(partial(read_parallel_set, record, path, (source, target)), **options)

    return attach_record(preset, parallel_set)


def read_parallel_set(record: ParallelSet, path: OptionalPath, sides: Sides) -> dict[str, Table]:
    """Read a set from the Hub or a local copy."""
    if path is None:
        return fetch_parallel_set(record, sides)
    trained = ("train", "val") if record.untrained else ("train",)
    tables = read_folder(record.name, path, sides, record.stems, trained)
    if record.entities:
        for split, table in tables.items():
            texts = {name: [*map(unescape, column)] for name, column in table.columns.items()}
            tables[split] = replace(table, columns=texts)
    return tables


def fetch_parallel_set(record: ParallelSet, sides: Sides) -> dict[str, Table]:
    """Load a set from the Hub or the cache of `datasets`, without pairs that have an empty side."""
    pair = "-".join(sorted(sides, key=lambda side: (side == "en", side)))  # English comes last, as in WMT
    parts = {part: record.rows.get(pair, {}).get(part) for part in HUB_SPLITS.values()}
    columns = [f"translation.{side}" if record.nested else side for side in sides]
    values = hub_columns(record.name, record.repository, parts, columns, pair if record.nested else None)
    splits = {}
    for split, part in HUB_SPLITS.items():
        first, second = ([text or "" for text in column] for column in values[part])
        table = Table({"first": first, "second": second}, f"{record.repository}, {part}")
        splits[split] = table.where([all(map(str.strip, row)) for row in zip(first, second, strict=True)])
    return splits
