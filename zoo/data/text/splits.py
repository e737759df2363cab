"""Cutting tables into training, validation and test rows: always the same rows, whatever the seed of the run."""

from collections.abc import Mapping

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import whole
from zoo.data.splits import stratified
from zoo.data.text.columns import Column
from zoo.data.text.table import Labels, Table, renumbered
from zoo.errors import InputError


def check_options(val: float, folds: int, fold: int) -> None:
    """Check the options of `split` without data."""
    whole("folds", folds, 2)
    whole("fold", fold, 0, folds - 1)
    if not 0 < val < 1:
        raise InputError(f"val={val}: must be above 0 and below 1")


def check_splits(tables: Mapping[str, Table], texts: int | None = None) -> None:
    """Compare the tables of a data set with one another, and with the number of texts in a row if it is given."""
    if "train" not in tables or set(tables) - {"train", "val", "test"}:
        raise InputError(f"splits {sorted(tables)}: train is needed; val and test may be there")
    train = tables["train"]
    for name, table in tables.items():
        if len(table) == 0:
            raise InputError(f"{table.source}, {name} split: no rows; every split needs at least one")
        if texts is not None and len(table.texts) != texts:
            raise InputError(f"{table.source}: {len(table.texts)} columns of text; {texts} are needed")
        if len(table.texts) != len(train.texts):
            known = f"{len(train.texts)} in the training split"
            raise InputError(f"{table.source}, {name} split: {len(table.texts)} columns of text, but {known}")
        if (table.groups is None) != (train.groups is None):
            which = "no questions to rank answers of" if table.groups is None else "questions to rank answers of"
            raise InputError(f"{table.source}, {name} split: {which}, other than the training split")


def split(tables: Mapping[str, Table], val: float, folds: int, fold: int) -> dict[str, Table]:
    """Add the splits that are missing, cut from the training split."""
    check_options(val, folds, fold)
    found = dict(tables)
    if not {"val", "test"} & set(found):
        train = found["train"]
        parts = _question_parts(train, train.groups, folds) if train.groups is not None else _parts(train, folds)
        found |= {"train": train.where(parts != fold), "test": train.where(parts == fold)}
    if "val" not in found:
        train = found["train"]
        chosen = _held_questions(train, train.groups, val) if train.groups is not None else _held_rows(train, val)
        found |= {"train": train.where(~chosen), "val": train.where(chosen)}
    return {name: found[name] for name in ("train", "val", "test") if name in found}


def question_numbers(groups: Column) -> Array:
    """Number the questions of a ranking in the order of their first appearance, int32 [N]; holds every question once."""
    return Labels.of(batch.to_pylist() for batch in groups.batches()).codes


def _parts(table: Table, folds: int) -> Array:
    """Deal the rows of every class, shuffled, onto `folds` parts; sizes differ by one at most, in all and per class."""
    labels = _labels(table)
    sizes = np.bincount(labels)
    able = (sizes > 1)[labels]
    if (count := int(able.sum())) < folds:
        raise InputError(
            f"{table.source}: folds={folds}, but {count} rows have a label that others have too; {_way_out(count)}"
        )
    random = np.random.RandomState(0)  # its streams are frozen for ever
    parts, done = np.full(len(table), -1, dtype=np.int32), 0
    for label in np.flatnonzero(sizes > 1):
        order = random.permutation(np.flatnonzero(labels == label).astype(np.int32))
        parts[order] = np.arange(done, done + len(order), dtype=np.int32) % folds
        done += len(order)
    return parts


def _labels(table: Table) -> Array:
    return renumbered(table.labels.codes)


def _question_parts(table: Table, groups: Column, folds: int) -> Array:
    """Deal the questions, shuffled, onto `folds` parts."""
    numbers = question_numbers(groups)
    count = int(numbers.max()) + 1
    if count < folds:
        raise InputError(f"{table.source}: folds={folds}, but there are {count} questions; {_way_out(count)}")
    parts: Array = (np.random.RandomState(0).permutation(count) % folds)[numbers]
    return parts


def _way_out(count: int) -> str:
    return f"use folds={count} or fewer" if count > 1 else "add rows, or give a test split"


def _held_rows(table: Table, share: float) -> Array:
    """Choose a stratified share of the rows; a class of one row is left to the training."""
    labels = _labels(table)
    able = (np.bincount(labels) > 1)[labels]
    count = _count(table, share, len(table), "rows")
    chosen = np.zeros(len(table), dtype=np.bool_)
    chosen[able] = stratified(labels[able], min(count, int(able.sum())))
    return chosen


def _held_questions(table: Table, groups: Column, share: float) -> Array:
    numbers = question_numbers(groups)
    number = int(numbers.max()) + 1
    first = np.random.RandomState(0).permutation(number)[: _count(table, share, number, "questions")]
    return np.isin(numbers, first)


def _count(table: Table, share: float, of: int, what: str) -> int:
    count = max(1, round(share * of))
    if count >= of:
        raise InputError(f"{table.source}: val={share} of {of} training {what} leaves none to train on")
    return count
