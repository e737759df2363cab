"""Labels as classes, and tables cut into training, validation and test rows: the same rows whatever the seed of the run."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import whole
from zoo.data.splits import stratified
from zoo.data.text.columns import Column
from zoo.data.text.formats import few
from zoo.data.text.table import Labels, Table, renumbered
from zoo.errors import InputError

RELEVANCE = ("irrelevant", "relevant")  # the classes of every ranking: label 1 is a right answer
RELEVANCE_NAMES = {"0": RELEVANCE[0], "1": RELEVANCE[1], "false": RELEVANCE[0], "true": RELEVANCE[1]}
DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)


def check_options(val: float, folds: int, fold: int) -> None:
    """Check the options of `split` without data."""
    whole("folds", folds, 2)
    whole("fold", fold, 0, folds - 1)
    if not 0 < val < 1:
        raise InputError(f"val={val}: must be above 0 and below 1")


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
    tables = {name: _named(table, names) for name, table in tables.items()}
    if trained and classes:
        for table in tables.values():
            _check_labels(table, classes, "is unknown to the model, which knows")
        known = tuple(classes)
    else:
        known = _class_names(tables, classes, names)
    splits = split(tables, val, folds, fold)
    for name, table in splits.items() if ranking else ():
        if RELEVANCE[1] not in table.labels.present():
            raise InputError(
                f"{table.source}: no answer of the {name} split is right, so there is nothing to rank; add some", code="data"
            )
    what = "questions" if ranking else "rows"
    held = f"validation {what} are {val:.0%} of the training {what}"
    if len(tables) == 1:
        return splits, known, f"one table without splits: part {fold} of {folds} is for testing, and {held} left"
    return splits, known, held if len(splits) > len(tables) else ""


# --- labels ---


def _named(table: Table, names: Mapping[str, str] | None) -> Table:
    """Give the labels the names that people see; a label that has a shown name already keeps it."""
    if names is None:
        return table
    known = {**{shown: shown for shown in names.values()}, **names}
    if (row := _first_unknown(table, known)) is not None:
        raise InputError(f"{table.location(row)}: label {few([table.labels[row]])} is none of {few(names)}", code="data")
    return table.changed(labels=table.labels.renamed(known))


def _class_names(
    tables: Mapping[str, Table], classes: Sequence[str] | None, names: Mapping[str, str] | None
) -> tuple[str, ...]:
    """List the classes: as given, else in the order of their names, else those of the training split, by number or alphabet."""
    train = tables["train"]
    seen = train.labels.present()
    if len(seen) < 2:
        raise InputError(
            f"{train.source}: one label only ({few(seen)}) in the training split: nothing to tell apart", code="data"
        )
    if all(map(DECIMAL.fullmatch, seen)):
        label = few(train.labels[:1])
        raise InputError(
            f"{train.location(0)}: label {label} is a decimal number, not a class: use words or whole numbers", code="data"
        )
    for table in tables.values():
        _check_labels(table, seen, "is not in the training split, which has")
    listed = list(classes) if classes is not None else list(names.values()) if names is not None else _in_order(seen)
    _check_labels(train, listed, "is not one of the classes")
    return tuple(dict.fromkeys(listed))


def _check_labels(table: Table, known: Iterable[str], complaint: str) -> None:
    """Compare every label with those that are known."""
    known = set(known)
    if (row := _first_unknown(table, known)) is not None:
        label = few([table.labels[row]])
        raise InputError(f"{table.location(row)}: label {label} {complaint} {few(_in_order(known))}", code="data")


def _first_unknown(table: Table, known: Iterable[str]) -> int | None:
    strange = ~table.labels.mask(set(known))
    return int(strange.argmax()) if strange.any() else None


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
        raise InputError(f"splits {sorted(tables)}: train is needed; val and test may be there", code="data")
    train = tables["train"]
    for name, table in tables.items():
        location, columns = f"{table.source}, {name} split", len(table.texts)
        if len(table) == 0:
            raise InputError(f"{location}: no rows; every split needs at least one", code="data")
        if texts is not None and columns != texts:
            raise InputError(f"{table.source}: {columns} columns of text; {texts} are needed", code="data")
        if columns != len(train.texts):
            raise InputError(
                f"{location}: {columns} columns of text, but {len(train.texts)} in the training split", code="data"
            )
        if (table.groups is None) != (train.groups is None):
            which = "no questions" if table.groups is None else "questions"
            raise InputError(f"{location}: {which} to rank answers of, other than the training split", code="data")


def split(tables: Mapping[str, Table], val: float, folds: int, fold: int) -> dict[str, Table]:
    """Add the splits that are missing, cut from the training split.

    Without validation and test rows, the test split is one of `folds` parts of equal size. Then a share `val` of the rest is
    held out for validation. Every class is in every part in its share; questions (`Table.groups`) stay whole instead.
    """
    check_options(val, folds, fold)
    splits = dict(tables)
    if not {"val", "test"} & set(splits):
        train = splits["train"]
        parts = _parts(train, folds)
        splits |= {"train": train.where(parts != fold), "test": train.where(parts == fold)}
    if "val" not in splits:
        train = splits["train"]
        chosen = _held(train, val)
        splits |= {"train": train.where(~chosen), "val": train.where(chosen)}
    return {name: splits[name] for name in ("train", "val", "test") if name in splits}


def question_numbers(groups: Column) -> Array:
    """Number the questions of a ranking in the order of their first appearance, int32 [N]; holds every question once."""
    return Labels.of(batch.to_pylist() for batch in groups.batches()).codes


def _parts(table: Table, folds: int) -> Array:
    """Deal the rows of every class, or the questions, onto `folds` parts; sizes differ by one at most, in all and per class.

    The only row of a class is in no part (-1), so it is always trained on: nobody can learn a label from the test rows.
    """
    random = np.random.RandomState(0)  # its streams are frozen for ever
    if table.groups is not None:
        questions = question_numbers(table.groups)
        if (count := int(questions.max()) + 1) < folds:
            raise InputError(f"{table.source}: folds={folds}, but there are {count} questions; {_way_out(count)}")
        return np.asarray(random.permutation(count) % folds)[questions]
    labels = renumbered(table.labels.codes)
    sizes = np.bincount(labels)
    if (count := int(sizes[sizes > 1].sum())) < folds:
        reason = f"{count} rows have a label that others have too"
        raise InputError(f"{table.source}: folds={folds}, but {reason}; {_way_out(count)}")
    parts, done = np.full(len(table), -1, dtype=np.int32), 0
    for label in np.flatnonzero(sizes > 1):
        order = random.permutation(np.flatnonzero(labels == label).astype(np.int32))
        parts[order] = np.arange(done, done + len(order), dtype=np.int32) % folds
        done += len(order)
    return parts


def _way_out(count: int) -> str:
    return f"use folds={count} or fewer" if count > 1 else "add rows, or give a test split"


def _held(table: Table, share: float) -> Array:
    """Choose a stratified share of the rows, or a share of the questions; a class of one row is left to the training."""
    questions = None if table.groups is None else question_numbers(table.groups)
    of, what = (len(table), "rows") if questions is None else (int(questions.max()) + 1, "questions")
    if (count := max(1, round(share * of))) >= of:
        raise InputError(f"{table.source}: val={share} of {of} training {what} leaves none to train on")
    if questions is not None:
        return np.isin(questions, np.random.RandomState(0).permutation(of)[:count])
    labels = renumbered(table.labels.codes)
    able = (np.bincount(labels) > 1)[labels]
    chosen = np.zeros(len(table), dtype=np.bool_)
    chosen[able] = stratified(labels[able], min(count, int(able.sum())))
    return chosen
