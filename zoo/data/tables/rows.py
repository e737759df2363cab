"""Encode rows of a table for a trained model."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.data.info import TableInfo
from zoo.data.tables.columns import parse_cell
from zoo.data.text.formats import rows
from zoo.errors import InputError


def encode_row(info: TableInfo, cells: Mapping[str, Any]) -> Tensor:
    """Return the features of one row, float32 [in_features], standardised as in training.

    Raises:
        InputError: A column of numbers holds text.
    """
    parsed = {name: parse_cell(cell) for name, cell in cells.items()}
    features = []
    for column, value in zip(info.columns, info.values, strict=True):
        number, text = parsed[column]
        if value is None and text and number != number:
            raise InputError(f"column {column!r} holds numbers, and here {text[:40]!r}", code="data")
        features.append(number if value is None else float(text == value))
    return info.standardise(torch.tensor(features, dtype=torch.float64))


def read_rows(path: Path, info: TableInfo) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of every row of a file (its line, if it has lines) and its features; the target may be missing."""
    wanted = {name: name for name in dict.fromkeys(info.columns)}
    for number, row in enumerate(rows(path, wanted, header=True), 1):
        location = f"{path}, row {number}" if row.line is None else f"{path}:{row.line}"
        if row.problem:
            raise InputError(f"{location}: {row.problem}", code="data")
        try:
            features = encode_row(info, dict(zip(wanted, row.values, strict=True)))
        except InputError as error:
            raise InputError(f"{location}: {error}", code="data") from None
        yield row.line or number, features
