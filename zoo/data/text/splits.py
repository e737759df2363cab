"""Cutting tables into training, validation and test rows: always the same rows, whatever the seed of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import whole
from zoo.data.splits import stratified
from zoo.data.text.table import Table
from zoo.errors import InputError


def split(tables: Mapping[str, Table], val: float, folds: int, fold: int, *, grouped: bool = False) -> dict[str, Table]:
    """Add the splits that are missing, cut from the training split.

    Without validation and test rows, the test split is one of `folds` parts of equal size. Then a share of what is left is
    held out for validation. Every class is in every part in its share; for ranking (`grouped`) questions stay whole instead.

    Args:
        tables: `train`, and if there are any `val` and `test`.
        val: Share of the training rows (or questions) to hold out.
        folds: Number of parts.
        fold: The part to test on, 0..folds - 1.
        grouped: Whether rows of one question stay together.

    Raises:
        InputError: A number is out of its range, or there are too few rows for it.
    """
    whole("folds", folds, 2)
    whole("fold", fold, 0, folds - 1)
    if not 0 < val < 1:
        raise InputError(f"val={val}: must be above 0 and below 1")
    found = dict(tables)
    if not {"val", "test"} & set(found):
        train = found["train"]
        parts = _question_parts(train, folds) if grouped else _parts(train, folds)
        found |= {"train": train.take(np.flatnonzero(parts != fold)), "test": train.take(np.flatnonzero(parts == fold))}
    if "val" not in found:
        train = found["train"]
        chosen = _held_questions(train, val) if grouped else _held_rows(train, val)
        found |= {"train": train.take(np.flatnonzero(~chosen)), "val": train.take(np.flatnonzero(chosen))}
    return {name: found[name] for name in ("train", "val", "test") if name in found}


def codes(values: Iterable[str]) -> Array:
    """Number values in the order of their first appearance, int64 [N]."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(value, len(seen)) for value in values], dtype=np.int64)


def questions(table: Table) -> Sequence[str]:
    """Return what tells the questions of a ranking apart."""
    return table.texts[0] if table.groups is None else table.groups


def _parts(table: Table, folds: int) -> Array:
    """Deal the rows of every class, shuffled, onto `folds` parts; sizes differ by one at most, in all and per class.

    The only row of a class is in no part (-1), so it is always trained on: nobody can learn a label from the test rows.
    """
    labels = codes(table.labels)
    sizes = np.bincount(labels)
    able = sizes[labels] > 1
    if (count := int(able.sum())) < folds:
        raise InputError(
            f"{table.source}: folds={folds}, but {count} rows have a label that others have too; {_way_out(count)}"
        )
    random = np.random.RandomState(0)  # its streams are frozen for ever
    order = np.concatenate([random.permutation(np.flatnonzero((labels == label) & able)) for label in range(len(sizes))])
    parts = np.full(len(table), -1, dtype=np.int64)
    parts[order] = np.arange(count) % folds
    return parts


def _question_parts(table: Table, folds: int) -> Array:
    """Deal the questions, shuffled, onto `folds` parts."""
    groups = codes(questions(table))
    count = int(groups.max()) + 1
    if count < folds:
        raise InputError(f"{table.source}: folds={folds}, but there are {count} questions; {_way_out(count)}")
    return (np.random.RandomState(0).permutation(count) % folds)[groups]


def _way_out(count: int) -> str:
    return f"use folds={count} or fewer" if count > 1 else "add rows, or give a test split"


def _held_rows(table: Table, share: float) -> Array:
    """Choose a stratified share of the rows; a class of one row is left to the training."""
    labels = codes(table.labels)
    able = np.flatnonzero(np.bincount(labels)[labels] > 1)
    count = _count(table, share, len(table), "rows")
    chosen = np.zeros(len(table), dtype=np.bool_)
    chosen[able] = stratified(labels[able], min(count, len(able)))
    return chosen


def _held_questions(table: Table, share: float) -> Array:
    groups = codes(questions(table))
    number = int(groups.max()) + 1
    first = np.random.RandomState(0).permutation(number)[: _count(table, share, number, "questions")]
    return np.isin(groups, first)


def _count(table: Table, share: float, of: int, what: str) -> int:
    count = max(1, round(share * of))
    if count >= of:
        raise InputError(f"{table.source}: val={share} of {of} training {what} leaves none to train on")
    return count


def digest(tables: Mapping[str, Table], classes: Sequence[str]) -> str:
    """Return the SHA-256 of class names, split names, texts, labels and groups."""
    sha = hashlib.sha256(repr(tuple(classes)).encode())
    for name in sorted(tables):
        table = tables[name]
        for column in (*table.texts, table.labels, table.groups or ()):
            content = [text.encode("utf-8", "surrogatepass") for text in column]
            sha.update(f"{name} {len(content)}".encode())
            sha.update(np.array([len(text) for text in content], dtype="<i8").tobytes())
            sha.update(b"".join(content))
    return sha.hexdigest()
