"""Text sets from the Hugging Face Hub, held against their published numbers of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.data.sources import load
from zoo.data.text.record import TextSet
from zoo.data.text.table import Table
from zoo.errors import InputError

UNLABELLED = frozenset({"-1", "-", "", "None"})
"""How sets mark a row that nobody could agree on, or whose label is secret."""


def fetch(record: TextSet) -> dict[str, Table]:
    """Fetch a set (once; then it is in the library's cache) and take the splits that are used.

    Rows without a label and rows without a text are left out.

    Raises:
        InputError: The Hub cannot be reached, or its copy has other columns or numbers of rows than it had.
    """
    loaded = load(record.name, record.repository, record.config, revision=record.revision)
    return {name: _joined(record, loaded, parts) for name, parts in record.splits.items()}


def _joined(record: TextSet, loaded: Mapping[str, Any], parts: Sequence[str]) -> Table:
    """Lay the Hub's splits end to end."""
    columns: list[list[str]] = [[] for _ in record.hub.all]
    for part in parts:
        for column, name in zip(columns, record.hub.all, strict=True):
            column += map(str, _checked(record, loaded, part)[name])
    texts, rest = columns[: len(record.hub.texts)], columns[len(record.hub.texts) :]
    source = f"{record.repository}, {' + '.join(parts)}"
    return labelled(Table(tuple(texts), rest[0], rest[1] if len(rest) > 1 else None, source))


def _checked(record: TextSet, loaded: Mapping[str, Any], part: str) -> Any:
    """Return a split of the Hub's copy.

    Raises:
        InputError: It, or a column of it, is missing, or it has another number of rows than published.
    """
    if part not in loaded:
        raise _changed(record, f"no split {part}, only {', '.join(loaded)}")
    table = loaded[part]
    if missing := [str(name) for name in record.hub.all if name not in table.column_names]:
        raise _changed(record, f"no column {', '.join(missing)} in {part}, only {', '.join(table.column_names)}")
    if len(table) != record.rows[part]:
        raise _changed(record, f"{len(table):,} rows in {part}, not {record.rows[part]:,}")
    return table


def _changed(record: TextSet, what: str) -> InputError:
    name = record.name
    return InputError(
        f"{name}: the Hub's copy has changed: {record.repository} has {what}; use {name}(path=...) for a local copy"
    )


def labelled(table: Table) -> Table:
    """Leave out the rows without a label or without a text."""
    rows = enumerate(zip(table.labels, *table.texts, strict=True))
    kept = [i for i, (label, *texts) in rows if label not in UNLABELLED and all(text.strip() for text in texts)]
    return table if len(kept) == len(table) else table.take(kept)


def answerable(table: Table) -> Table:
    """Leave out the questions without a right answer, which no ranking can do well or badly.

    Raises:
        InputError: None has one.
    """
    groups = table.texts[0] if table.groups is None else table.groups
    right = {group for group, label in zip(groups, table.labels, strict=True) if label.lower() in ("1", "true", "relevant")}
    kept = [i for i, group in enumerate(groups) if group in right]
    if not kept:
        raise InputError(f"{table.source}: no question has an answer of label 1")
    return table if len(kept) == len(table) else table.take(kept)
