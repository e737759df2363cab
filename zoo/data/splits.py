"""Cut data into splits, stratified and independent of the seed of a run, and turn labels into classes."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from zoo.data.loader import Array, Mask
from zoo.data.options import DataError, quote_few
from zoo.data.table import Table, codes


def stratified(labels: Array, count: int) -> Mask:
    """Choose `count` rows with every class in proportion, to within one row; return a mask [N]."""
    random = np.random.RandomState(0)  # its streams are frozen, unlike those of np.random.Generator
    sizes = np.bincount(labels)
    shares = sizes * count / len(labels)
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: count - counts.sum()]] += 1
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for label in np.flatnonzero(counts):
        chosen[random.permutation(np.flatnonzero(labels == label))[: counts[label]]] = True
    return chosen


def held_out(labels: Array, name: str, share: float, source: str, *, keep_lone: bool = False) -> Mask:
    """Choose a stratified share of the training rows, at least one, for another split; return a mask [N].

    Labels of zeros give no stratification. With `keep_lone` the only row of a class stays in training, since no other row
    teaches its label. `InputError` if no training row would remain.
    """
    if (count := max(1, round(share * len(labels)))) >= len(labels):
        raise DataError(f"{source}: {name}={share} of {len(labels)} training rows leaves none to train on")
    eligible = (np.bincount(labels) > 1)[labels] if keep_lone else np.ones(len(labels), np.bool_)
    if not eligible.any():
        raise DataError(f"{source}: every training row has another label, so none can be held out for the split {name}")
    chosen = np.zeros(len(labels), np.bool_)
    chosen[eligible] = stratified(labels[eligible], min(count, int(eligible.sum())))
    return chosen


def assign_folds(labels: Array, folds: int) -> Array:
    """Assign the rows of every class to folds whose sizes differ by at most one, in total and per class; return folds [N].

    The only row of a class has fold -1, so it is always trained on.
    """
    random, sizes = np.random.RandomState(0), np.bincount(labels)
    assigned, done = np.full(len(labels), -1, dtype=np.int32), 0
    for label in np.flatnonzero(sizes > 1):
        order = random.permutation(np.flatnonzero(labels == label).astype(np.int32))
        assigned[order] = np.arange(done, done + len(order), dtype=np.int32) % folds
        done += len(order)
    return assigned


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

    Returns the splits, the classes, and a comment on how missing splits were made.
    """
    check_splits(tables)
    ranking = tables["train"].groups is not None
    if ranking:
        classes, names = RELEVANCE, names or RELEVANCE_NAMES
    if names is not None:
        renamed = {**{name: name for name in names.values()}, **names}  # labels may already have their new names
        tables = dict(tables)
        for key, table in tables.items():
            _check_labels(table, renamed, names)
            tables[key] = replace(table, columns={**table.columns, "label": [renamed[label] for label in table.labels]})
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
        if columns != (known := expected if expected in (1, 2) else "'text', or 'first' and 'second'"):
            raise DataError(f"{location}: {columns} columns of text; expected {known}")
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
