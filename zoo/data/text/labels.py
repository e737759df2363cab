"""From labels as they are written to the numbers of classes."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from zoo.data.loader import Array
from zoo.data.text.formats import few
from zoo.data.text.table import Table
from zoo.errors import InputError

RELEVANCE = ("irrelevant", "relevant")
"""The classes of every ranking: label 1 is a right answer."""

RELEVANCE_NAMES = {"0": RELEVANCE[0], "1": RELEVANCE[1], "false": RELEVANCE[0], "true": RELEVANCE[1]}

DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)


def named(table: Table, names: Mapping[str, str] | None) -> Table:
    """Give the labels the names that people see; a label that has a shown name already keeps it."""
    if names is None:
        return table
    known = {**{shown: shown for shown in names.values()}, **names}
    if (row := _first_unknown(table, known)) is not None:
        raise InputError(f"{table.location(row)}: label {few([table.labels[row]])} is none of {few(names)}")
    return table.changed(labels=table.labels.renamed(known))


def class_names(tables: Mapping[str, Table], classes: Sequence[str] | None, names: Mapping[str, str] | None) -> tuple[str, ...]:
    """List the classes: as given, else in the order of their names, else those of the training split, by number or alphabet."""
    train = tables["train"]
    seen = train.labels.present()
    if len(seen) < 2:
        raise InputError(f"{train.source}: one label only ({few(seen)}) in the training split: nothing to tell apart")
    if all(map(DECIMAL.fullmatch, seen)):
        label = few(train.labels[:1])
        raise InputError(f"{train.location(0)}: label {label} is a decimal number, not a class: use words or whole numbers")
    for table in tables.values():
        check_labels(table, seen, "is not in the training split, which has")
    listed = list(classes) if classes is not None else list(names.values()) if names is not None else in_order(seen)
    check_labels(train, listed, "is not one of the classes")
    return tuple(dict.fromkeys(listed))


def check_labels(table: Table, known: Iterable[str], complaint: str) -> None:
    """Compare every label with those that are known."""
    known = set(known)
    if (row := _first_unknown(table, known)) is not None:
        label = few([table.labels[row]])
        raise InputError(f"{table.location(row)}: label {label} {complaint} {few(in_order(known))}")


def _first_unknown(table: Table, known: Iterable[str]) -> int | None:
    """Return the first row whose label is not known; None if there is none."""
    strange = ~table.labels.mask(set(known))
    return int(strange.argmax()) if strange.any() else None


def check_answers(tables: Mapping[str, Table]) -> None:
    """Refuse a split in which no answer is right: there is nothing to rank."""
    for name, table in tables.items():
        if RELEVANCE[1] not in table.labels.present():
            raise InputError(f"{table.source}: no answer of the {name} split is right, so there is nothing to rank; add some")


def in_order(labels: Iterable[str]) -> list[str]:
    """Sort labels: by their values if all are whole numbers, else alphabetically."""
    labels = list(labels)
    if all(re.fullmatch(r"[+-]?[0-9]+", label) for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def numbers(table: Table, classes: Sequence[str]) -> Array:
    """Return the number of the class of every row, int32 [N]."""
    number = {name: i for i, name in enumerate(classes)}
    to = np.array([number.get(name, -1) for name in table.labels.names], dtype=np.int32)
    found: Array = to[table.labels.codes]
    return found
