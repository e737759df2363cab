"""Rows with named values: JSON lines and Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zoo.data.text.cells import Cells, Column, Wanted, no_column
from zoo.data.text.content import read_bytes, read_text
from zoo.errors import InputError


def jsonl(path: Path, wanted: Wanted) -> Cells:
    """Read one JSON object per line."""
    if numbers := [column for column in wanted.values() if isinstance(column, int)]:
        raise InputError(f"{path}: column {numbers[0]}: the values of JSON lines have no numbers; give the name")
    columns: dict[str, list[Any]] = {option: [] for option in wanted}
    lines = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        record = _record(line, f"{path}:{number}")
        lines.append(number)
        for option, column in wanted.items():
            if column not in record:
                raise no_column(f"{path}:{number}", column, record)
            columns[option].append(record[column])
    return Cells(dict(columns), wanted, str(path), lines)


def _record(line: str, place: str) -> dict[Any, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON ({error}); every line must be one object") from error
    if not isinstance(record, dict):
        raise InputError(f"{place}: a JSON {type(record).__name__}, not an object; every line must be one object")
    return record


def parquet(path: Path, wanted: Wanted) -> Cells:
    """Read the wanted columns of a Parquet file."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        file = pq.ParquetFile(pa.BufferReader(read_bytes(path)))
        there = file.schema_arrow.names
        names = {option: _name(str(path), column, there) for option, column in wanted.items()}
        table = file.read(columns=sorted(set(names.values())))
        columns = {option: table.column(name).to_pylist() for option, name in names.items()}
        return Cells(columns, wanted, str(path), None)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:120]
        raise InputError(f"{path}: not a Parquet file that can be read ({reason})") from error


def _name(place: str, column: Column, there: list[str]) -> str:
    if isinstance(column, int) and 0 <= column < len(there):
        return there[column]
    if column not in there:
        raise no_column(place, column, there)
    return str(column)
