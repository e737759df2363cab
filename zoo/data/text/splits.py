"""Labels as classes, and tables cut into training, validation and test rows."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import DataError
from zoo.data.splits import folds_of, held_out
from zoo.data.text.formats import few
from zoo.data.text.table import Labels, Table

RELEVANCE = ("irrelevant", "relevant")  # the classes of every ranking: label 1 is a right answer
RELEVANCE_NAMES = {"0": RELEVANCE[0], "1": RELEVANCE[1], "false": RELEVANCE[0], "true": RELEVANCE[1]}
DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)


def prepared(
    tables: Mapping[str, Table],
    classes: Sequence[str] | None,
    names: Mapping[str, str] | None,
    trained: bool,
    val: float,
    folds: int,
    fold: int,
) -> tuple[dict[str, Table], tuple[str, ...], str]:
    """Check tables, name their labels and add the splits that are missing, see `TextData`.

    Returns:
        The splits, the classes, and a comment on which splits were cut from which.
    """
    check_splits(tables)
    ranking = tables["train"].groups is not None
    if ranking:
        classes, names = RELEVANCE, names or RELEVANCE_NAMES
    if names is not None:
        known = {**{shown: shown for shown in names.values()}, **names}  # a label that has a shown name already keeps it
        for table in tables.values():
            _check_labels(table, known, "is none of", names)
        tables = {name: table.changed(labels=table.labels.renamed(known)) for name, table in tables.items()}
    if trained and classes:
        for table in tables.values():
            _check_labels(table, classes, "is unknown to the model, which knows")
    else:
        classes = _class_names(tables, classes, names)
    splits = split(tables, val, folds, fold)
    for name, table in splits.items() if ranking else ():
        if RELEVANCE[1] not in table.labels.present():
            none = f"no answer of the {name} split is right, so there is nothing to rank; add some"
            raise DataError(f"{table.source}: {none}")
    what = "questions" if ranking else "rows"
    comment = f"validation {what} are {val:.0%} of the training {what}" if len(splits) > len(tables) else ""
    if len(tables) == 1:
        comment = f"one table without splits: part {fold} of {folds} is for testing, and {comment} left"
    return splits, tuple(classes), comment


# --- labels ---


def _class_names(tables: Mapping[str, Table], classes: Sequence[str] | None, names: Mapping[str, str] | None) -> list[str]:
    """List the classes: as given, else in the order of their names, else those of the training split, by number or alphabet."""
    train = tables["train"]
    seen = train.labels.present()
    if len(seen) < 2:
        lone = f"one label only ({few(seen)}) in the training split: nothing to tell apart"
        raise DataError(f"{train.source}: {lone}")
    if all(map(DECIMAL.fullmatch, seen)):
        wrong = f"label {few(train.labels[:1])} is a decimal number, not a class: use words or whole numbers"
        raise DataError(f"{train.location(0)}: {wrong}")
    for table in tables.values():
        _check_labels(table, seen, "is not in the training split, which has")
    listed = list(classes) if classes is not None else list(names.values()) if names is not None else _in_order(seen)
    _check_labels(train, listed, "is not one of the classes")
    return list(dict.fromkeys(listed))


def _check_labels(table: Table, known: Iterable[str], complaint: str, shown: Iterable[str] | None = None) -> None:
    known = set(known)
    if not (strange := ~table.labels.mask(known)).any():
        return
    row = int(strange.argmax())
    label, listed = few([table.labels[row]]), few(_in_order(known) if shown is None else shown)
    raise DataError(f"{table.location(row)}: label {label} {complaint} {listed}")


def _in_order(labels: Iterable[str]) -> list[str]:
    """Sort labels: by their values if all are whole numbers, else alphabetically."""
    labels = list(labels)
    if all(re.fullmatch(r"[+-]?[0-9]+", label) for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


# --- splits ---


def check_splits(tables: Mapping[str, Table], texts: int | None = None) -> None:
    """Compare the tables of a data set with one another, and with the number of texts in a row if it is given."""
    if "train" not in tables or set(tables) - {"train", "val", "test"}:
        raise DataError(f"splits {sorted(tables)}: train is needed; val and test may be there")
    train = tables["train"]
    expected = len(train.texts) if texts is None else texts
    for name, table in tables.items():
        location, columns = f"{table.source}, {name} split", len(table.texts)
        if len(table) == 0:
            raise DataError(f"{location}: no rows; every split needs at least one")
        if columns != expected:
            raise DataError(f"{location}: {columns} columns of text; expected {expected}")
        if (table.groups is None) != (train.groups is None):
            which = "no questions" if table.groups is None else "questions"
            raise DataError(f"{location}: {which} to rank answers of, other than the training split")


def split(tables: Mapping[str, Table], val: float, folds: int, fold: int) -> dict[str, Table]:
    """Add the splits that are missing, cut from the training split.

    Without validation and test rows, the test split is one of `folds` parts of equal size. Then a share `val` of the rest is
    held out for validation. Every class is in every part in its share; questions (`Table.groups`) stay whole instead.
    """
    splits = dict(tables)
    if not {"val", "test"} & set(splits):
        parts = _parts(train := splits["train"], folds)
        splits |= {"train": train.where(parts != fold), "test": train.where(parts == fold)}
    return with_validation(splits, val)


def with_validation(tables: Mapping[str, Table], share: float) -> dict[str, Table]:
    """Hold a share of the training rows, at least one, out for validation, if there is no such split."""
    splits = dict(tables)
    if "val" not in splits:
        train = splits["train"]
        if train.groups is not None:
            questions = question_numbers(train)
            chosen = held_out(np.zeros(questions.max() + 1, np.int64), "val", share, train.source)[questions]
        elif len(train.labels):
            chosen = held_out(_in_appearance(train), "val", share, train.source, keep_lone=True)
        else:
            chosen = held_out(np.zeros(len(train), np.int64), "val", share, train.source)
        splits |= {"train": train.where(~chosen), "val": train.where(chosen)}
    return {name: splits[name] for name in ("train", "val", "test") if name in splits}


def question_numbers(table: Table) -> Array:
    """Number the questions of a ranking in the order of their first appearance, int32 [N]."""
    assert table.groups is not None
    return Labels.of(batch.to_pylist() for batch in table.groups.batches()).codes


def _in_appearance(table: Table) -> Array:
    """Number the labels of a table in the order of their first appearance, [N]."""
    _, first, codes = np.unique(table.labels.codes, return_index=True, return_inverse=True)
    ranks: Array = np.argsort(np.argsort(first))[codes]
    return ranks


def _parts(table: Table, folds: int) -> Array:
    if table.groups is not None:
        questions = question_numbers(table)
        count, what = int(questions.max()) + 1, "questions"
        parts = (np.random.RandomState(0).permutation(count) % folds)[questions]
    else:
        parts = folds_of(_in_appearance(table), folds)
        count, what = int((parts >= 0).sum()), "rows whose label another row has too"
    if count < folds:
        way_out = f"use folds={count} or fewer" if count > 1 else "add rows, or give a test split"
        raise DataError(f"{table.source}: folds={folds}, but there are {count} {what}; {way_out}")
    return parts
