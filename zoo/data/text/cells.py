"""What formats of files have in common: wanted columns in, their values and lines out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.data.text.labels import few
from zoo.errors import InputError

Column = str | int
Wanted = Mapping[str, Column]
"""Columns by the option that names them, such as text, first, label."""


@dataclass(frozen=True)
class Cells:
    """The values of wanted columns.

    Attributes:
        columns: The values by option.
        wanted: The columns they are from.
        source: The file.
        lines: The line of every row, from 1 on; None if the file has no lines.
    """

    columns: dict[str, Sequence[Any]]
    wanted: Wanted
    source: str
    lines: Sequence[int] | None

    def place(self, row: int) -> str:
        """Say where a row stands."""
        return f"{self.source}, row {row + 1}" if self.lines is None else f"{self.source}:{self.lines[row]}"


def no_column(place: str, column: Column, there: Iterable[object], hint: str = "") -> InputError:
    """Say that a column is missing and what columns there are."""
    listed = few([str(name) for name in there])
    return InputError(f"{place}: no column {column!r}; there is {listed or 'none at all'}{hint}")
