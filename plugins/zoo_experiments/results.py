"""Files of results: ``results.jsonl`` of sweeps and ``lottery.json`` of lottery tickets."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zoo.atomic import write_text
from zoo.checkpoint.manifest import read_json
from zoo.errors import check_rules

ROWS = "results.jsonl"
"""One line of JSON for each finished run of a sweep, in the order of the grid."""
TICKETS = "lottery.json"
"""The rows of the finished rounds of an experiment with lottery tickets."""
FORMAT = 1
_RUN = {"name": str, "folder": str, "axes": dict, "options": dict, "metrics": dict, "parameters": dict}
_ROUND: dict[str, Any] = {"algebra": str, "control": str | None, "seed": int, "round": int, "folder": str}
_ROUND |= {"survivors": int, "weights": int, "real_weights": int, "val": dict, "test": dict, "seconds": int | float}
_RECORD = {"backbone": str, "data": str, "metric": str, "mode": str, "pruning": dict, "rows": list, "stopped": list}
_STOPPED: dict[str, Any] = {"algebra": str, "control": str | None, "seed": int, "round": int, "reason": str}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a sweep."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            rows.append(None)
        text = f"line {number} of '{path}' is not a run of a sweep: delete the line to rebuild it"
        check_rules((has_types(rows[-1], _RUN), text), code="corrupt")
    return rows


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of a sweep in one step."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_tickets(path: Path) -> dict[str, Any]:
    """Read ``lottery.json``."""
    record = read_json(path)
    version = record.get("format")
    check_rules((version == FORMAT, f"{path} has format {version!r:.20}, expected {FORMAT}"), code="unsupported")
    fits = has_types(record, _RECORD) and all(has_types(note, _STOPPED) for note in record["stopped"])
    check_rules((fits, f"{path} is damaged: delete it to rebuild it"), code="corrupt")
    for number, row in enumerate(record["rows"]):
        check_rules((has_types(row, _ROUND), f"{path} is damaged: rows[{number}] is not a round"), code="corrupt")
    return record


def has_types(values: Any, kinds: Mapping[str, Any]) -> bool:
    """Return whether a JSON object has the given keys with values of the given types."""
    return isinstance(values, dict) and all(key in values and isinstance(values[key], kind) for key, kind in kinds.items())
