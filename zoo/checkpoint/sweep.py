"""The file ``results.jsonl`` of a sweep: one line of JSON for every run that is finished, in the order of the grid."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zoo.atomic import write_text
from zoo.errors import InputError

RESULTS = "results.jsonl"
_TEXTS, _TABLES = ("name", "folder"), ("axes", "options", "metrics", "parameters")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a sweep; `InputError` names the line that is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{path}': {getattr(error, 'strerror', None) or 'it is no text'}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        fine = isinstance(row, dict) and all(isinstance(row.get(key), str) for key in _TEXTS)
        if not fine or not all(isinstance(row.get(key), dict) for key in _TABLES):
            raise InputError(f"line {number} of '{path}' is no run of a sweep: remove the line, and the run is read anew")
        rows.append(row)
    return rows


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of a sweep in one step."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
