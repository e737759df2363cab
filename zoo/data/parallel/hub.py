"""Pairs of texts from the Hugging Face Hub, held against their published numbers of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.data.parallel.pairs import Pairs
from zoo.data.parallel.record import SPLITS, ParallelSet, table_of
from zoo.data.sources import is_text, load
from zoo.errors import InputError


def fetch(record: ParallelSet, sides: tuple[str, str]) -> dict[str, Pairs]:
    """Fetch a set (once; then it is in the library's cache); pairs of which a side is empty are left out.

    Args:
        record: The set.
        sides: The languages of the sources and of the targets.

    Raises:
        InputError: The Hub cannot be reached, its copy has other columns or numbers of rows than it had, or the sides are one.
    """
    if len(set(sides)) == 1:
        raise InputError(f"{record.name}: source={sides[0]} and target={sides[1]} are one language; give two")
    loaded = load(record.name, record.repository, table_of(sides) if record.paired else None, revision="main")
    return {split: _pairs(record, loaded, part, sides) for split, part in SPLITS.items()}


def _pairs(record: ParallelSet, loaded: Mapping[str, Any], part: str, sides: tuple[str, str]) -> Pairs:
    """Read a split of the Hub's copy.

    Raises:
        InputError: It, or a column of it, is missing, or it has another number of rows than published.
    """
    if part not in loaded:
        raise _changed(record, f"no split {part}, only {', '.join(loaded)}")
    table = loaded[part].flatten()
    columns = [record.column.format(side) for side in sides]
    if missing := [column for column in columns if column not in table.column_names]:
        raise _changed(record, f"no column {', '.join(missing)} in {part}, only {', '.join(table.column_names)}")
    if other := [column for column in columns if not is_text(table.features[column])]:
        raise _changed(record, f"no text in the column {', '.join(other)} of {part}")
    wanted = record.rows.get(table_of(sides), {}).get(part)
    if wanted not in (None, len(table)):
        raise _changed(record, f"{len(table):,} rows in {part}, not {wanted:,}")
    sources, targets = ([text or "" for text in table[column][:]] for column in columns)
    pairs = Pairs(sources, targets, f"{record.repository}, {part}")
    kept = [row for row, texts in enumerate(zip(sources, targets, strict=True)) if all(text.strip() for text in texts)]
    return pairs if len(kept) == len(pairs) else pairs.take(kept)


def _changed(record: ParallelSet, what: str) -> InputError:
    where = f"the copy on the Hub is another than expected: {record.repository} has {what}"
    return InputError(f"{record.name}: {where}; use {record.name}(path=...) for a local copy")
