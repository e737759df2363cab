"""Checking the values of columns, and making a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.data.text.cells import Cells
from zoo.data.text.table import Table
from zoo.errors import InputError

KINDS = {str: "text", bool: "true or false", int: "a whole number"}


def table_of(cells: Cells, texts: Sequence[str]) -> Table:
    """Make a table of the columns `texts`, `label`, and `group` if it is there.

    Raises:
        InputError: A text or a label is empty or of a wrong type; the message says where.
    """
    if not cells.columns["label"]:
        raise InputError(f"{cells.source}: no rows; a header alone is not enough")
    columns = tuple([_text(value, cells, row, option) for row, value in enumerate(cells.columns[option])] for option in texts)
    labels = _labels(cells)
    groups = [_name(value, cells, row, "group") for row, value in enumerate(cells.columns.get("group", ()))]
    return Table(columns, labels, groups or None, cells.source, cells.lines)


def _text(value: Any, cells: Cells, row: int, option: str) -> str:
    column = cells.wanted[option]
    if not isinstance(value, str):
        raise InputError(f"{cells.place(row)}: column {column!r} is {_shown(value)}, not text")
    if not value.strip():
        raise InputError(f"{cells.place(row)}: empty text in column {column!r}; leave the row out or write something")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{cells.place(row)}: column {column!r} holds half a character (a lone surrogate); write it as UTF-8")
    return value


def _labels(cells: Cells) -> list[str]:
    """Return labels as text; all of them must be of one kind, since 1 and "1" may or may not mean the same."""
    values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in cells.columns["label"]]
    for row, value in enumerate(values):
        if type(value) not in KINDS:
            raise InputError(f"{cells.place(row)}: label is {_shown(value)}; it must be text or a whole number")
        if type(value) is not type(values[0]):
            kinds = f"{_shown(value)} is {KINDS[type(value)]}, but {_shown(values[0])} ({cells.place(0)})"
            raise InputError(f"{cells.place(row)}: label {kinds} is {KINDS[type(values[0])]}; write all labels alike")
    return [_name(value, cells, row, "label") for row, value in enumerate(values)]


def _name(value: Any, cells: Cells, row: int, option: str) -> str:
    """Return a label or the name of a group as text."""
    if not isinstance(value, str | int):
        raise InputError(f"{cells.place(row)}: {option} is {_shown(value)}; it must be text or a whole number")
    name = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if not name:
        raise InputError(f"{cells.place(row)}: empty {option}")
    return name


def _shown(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"
