"""Turn labels into classes, and cut tables into training, validation and test rows."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import DataError, quote_few
from zoo.data.splits import assign_folds, held_out
from zoo.data.text.table import Table, codes

RELEVANCE = ("irrelevant", "relevant")  # the classes of every ranking: label 1 is a right answer
RELEVANCE_NAMES = {"0": RELEVANCE[0], "1": RELEVANCE[1], "false": RELEVANCE[0], "true": RELEVANCE[1]}
DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)


def prepare_tables(
    tables: Mapping[str, Table],
    classes: Sequence[str] | None,
    names: Mapping[str, str] | None,
    trained: bool,
    val: float,
    folds: int,
    fold: int,
) -> tuple[dict[str, Table], tuple[str, ...], str]:
    """Check tables, rename their labels and add missing splits, see `TextData`.

    Returns:
        The splits, the classes, and a comment on how missing splits were made.
    """
    check_splits(tables)
    ranking = tables["train"].groups is not None
    if ranking:
        classes, names = RELEVANCE, names or RELEVANCE_NAMES
    if names is not None:
        renamed = {**{name: name for name in names.values()}, **names}  # labels may already have their new names
        for table in tables.values():
            _check_labels(table, renamed, names)
        tables = {key: replace(table, labels=[renamed[label] for label in table.labels]) for key, table in tables.items()}
    if not (trained and classes):
        classes = _class_names(tables["train"], classes, names)
    for name, table in tables.items():
        known = classes if trained or name == "train" else set(tables["train"].labels)
        _check_labels(table, known, _sorted_labels(known))
    splits = split_tables(tables, val, folds, fold)
    for name, table in splits.items() if ranking else ():
        if RELEVANCE[1] not in table.labels:
            raise DataError(f"{table.source}: the {name} split has no right answer, so it cannot be ranked; add some")
    unit = "questions" if ranking else "rows"
    comment = f"validation {unit} are {val:.0%} of the training {unit}" if len(splits) > len(tables) else ""
    if len(tables) == 1:
        comment = f"one table without splits: part {fold} of {folds} is for testing, and {comment} left"
    return splits, tuple(dict.fromkeys(classes)), comment


def _class_names(train: Table, classes: Sequence[str] | None, names: Mapping[str, str] | None) -> Sequence[str]:
    """Return the classes as given, or in the order of `names`, or the sorted labels of the training split."""
    labels = set(train.labels)
    if len(labels) < 2:
        raise DataError(f"{train.source}: the training split has one label only ({quote_few(labels)}); expected at least two")
    if all(map(DECIMAL.fullmatch, labels)):
        decimal = f"label {quote_few(train.labels[:1])} is a decimal number; use words or whole numbers"
        raise DataError(f"{train.location(0)}: {decimal}")
    if classes is not None:
        return classes
    return [*names.values()] if names is not None else _sorted_labels(labels)


def _check_labels(table: Table, known: Collection[str], shown: Iterable[str]) -> None:
    for row, label in enumerate(table.labels):
        if label not in known:
            raise DataError(f"{table.location(row)}: unknown label {quote_few([label])}; expected one of {quote_few(shown)}")


def _sorted_labels(labels: Iterable[str]) -> list[str]:
    """Sort labels by value if all are whole numbers, else alphabetically."""
    labels = list(labels)
    if all(re.fullmatch(r"[+-]?[0-9]+", label) for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def check_splits(tables: Mapping[str, Table], num_texts: int | None = None) -> None:
    """Check the tables of a data set against each other, and against the number of texts per row if it is given."""
    if "train" not in tables or set(tables) - {"train", "val", "test"}:
        raise DataError(f"splits {sorted(tables)}: use train, and optionally val and test")
    train = tables["train"]
    expected = len(train.texts) if num_texts is None else num_texts
    for name, table in tables.items():
        location, columns = f"{table.source}, {name} split", len(table.texts)
        if len(table) == 0:
            raise DataError(f"{location}: no rows; expected at least one")
        if columns != expected:
            raise DataError(f"{location}: {columns} columns of text; expected {expected}")
        if (table.groups is None) != (train.groups is None):
            raise DataError(f"{location}: all splits or none must have questions to rank answers of")


def split_tables(tables: Mapping[str, Table], val: float, folds: int, fold: int) -> dict[str, Table]:
    """Cut missing splits from the training split.

    Without validation and test rows, the test split is one of `folds` parts of equal size, and a share `val` of the rest is
    held out for validation. Parts are stratified by label; in a ranking questions stay whole instead (`Table.groups`).
    """
    splits = dict(tables)
    if not {"val", "test"} & set(splits):
        assigned = _assign_folds(train := splits["train"], folds)
        splits |= {"train": train.where(assigned != fold), "test": train.where(assigned == fold)}
    return with_validation(splits, val)


def with_validation(tables: Mapping[str, Table], share: float) -> dict[str, Table]:
    """Hold out a share of the training rows, at least one, if there is no validation split."""
    splits = dict(tables)
    if "val" not in splits:
        train = splits["train"]
        if train.groups is not None:
            questions = codes(train.groups)
            chosen = held_out(np.zeros(questions.max() + 1, np.int64), "val", share, train.source)[questions]
        else:
            labels = codes(train.labels) if train.labels else np.zeros(len(train), np.int64)
            chosen = held_out(labels, "val", share, train.source, keep_lone=bool(train.labels))
        splits |= {"train": train.where(~chosen), "val": train.where(chosen)}
    return {name: splits[name] for name in ("train", "val", "test") if name in splits}


def _assign_folds(table: Table, folds: int) -> Array:
    if table.groups is not None:
        questions = codes(table.groups)
        count, unit = int(questions.max()) + 1, "questions"
        assigned = (np.random.RandomState(0).permutation(count) % folds)[questions]
    else:
        assigned = assign_folds(codes(table.labels), folds)
        count, unit = int((assigned >= 0).sum()), "rows with a label that occurs twice"
    if count < folds:
        advice = f"use folds={count} or less" if count > 1 else "add rows or a test split"
        raise DataError(f"{table.source}: folds={folds}, but there are only {count} {unit}; {advice}")
    return assigned
