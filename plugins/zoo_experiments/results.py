"""Files of results: ``results.jsonl`` of sweeps and ``lottery.json`` of lottery tickets, which may be untrusted."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zoo.atomic import write_text
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError, check_rules, printable

ROWS = "results.jsonl"
"""One line of JSON for each finished run of a sweep, in the order of the grid."""
TICKETS = "lottery.json"
"""The rows of the finished rounds of an experiment with lottery tickets."""
FORMAT = 1
_LARGEST = 2**60
_FOLDER = re.compile(r"(?!\.+/)[\w.-]+/seed-\d+/round-\d+")
"""Folder of a round in that of the experiment: files are removed and read there, and it is printed in a command."""
_ARM: dict[str, Any] = {"algebra": str, "control": (str, type(None)), "seed": int, "round": int}
_STOPPED = _ARM | {"reason": str}
_ROW = _ARM | {"survivors": int, "weights": int, "real_weights": int, "folder": str}
_ROW |= {"epoch": (int, type(None)), "seconds": (int, float)}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a sweep."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read '{path}': {getattr(error, 'strerror', None) or 'not text'}", code="corrupt") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        kinds = {"name": str, "folder": str, "axes": dict, "options": dict, "metrics": dict, "parameters": dict}
        fine = isinstance(row, dict) and all(isinstance(row.get(key), kind) for key, kind in kinds.items())
        text = f"line {number} of '{path}' is not a run of a sweep: delete the line to rebuild it"
        check_rules((fine, text), code="corrupt")
        rows.append(row)
    return rows


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows of a sweep in one step."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_tickets(path: Path) -> dict[str, Any]:
    """Read ``lottery.json``."""
    record = read_json(path)
    version = record.get("format")
    check_rules((version == FORMAT, f"{path} has format {version!r:.20}, expected {FORMAT}"), code="unsupported")
    wrong = [key for key in ("metric", "data", "backbone") if not is_name(record.get(key))]
    wrong += [] if record.get("mode") in ("min", "max") else ["mode"]
    pruning = record.get("pruning")
    patterns = [pruning.get(key, []) for key in ("include", "exclude")] if isinstance(pruning, dict) else [None]
    wrong += (
        [] if all(isinstance(names, list) and all(isinstance(x, str) for x in names) for names in patterns) else ["pruning"]
    )
    wrong += [key for key in ("rows", "stopped") if not isinstance(record.get(key), list)]
    check_rules((not wrong, f"{path} is damaged: {', '.join(wrong[:1])} is missing or has the wrong type"), code="corrupt")
    for key, problem_of in (("rows", row_problem), ("stopped", lambda note: _wrong_type(note, _STOPPED))):
        for number, row in enumerate(record[key]):
            problem = problem_of(row)
            check_rules((not problem, f"{path} is damaged: {key}[{number}] {problem}"), code="corrupt")
    keys = Counter((row["algebra"], row["control"], row["seed"], row["round"]) for row in record["rows"])
    twice = [printable(str(key)) for key, count in keys.items() if count > 1]
    check_rules((not twice, f"{path} is damaged: two rows of {', '.join(twice[:1])}"), code="corrupt")
    return record


def row_problem(row: Any) -> str:
    """Describe what is wrong with a row of ``lottery.json``; empty if nothing is."""
    if problem := _wrong_type(row, _ROW):
        return problem
    survivors, weights, real = row["survivors"], row["weights"], row["real_weights"]
    in_range = 0 <= survivors <= weights and 0 < weights < _LARGEST and 0 < real < _LARGEST and 0 <= row["round"] < 1000
    if not in_range or not _FOLDER.fullmatch(row["folder"]):
        return "has counts out of range" if not in_range else "has a folder that is not that of a round"
    values = [
        value for split in ("val", "test") for value in (row[split].values() if isinstance(row.get(split), dict) else ("",))
    ]
    # An integer may be too large for a float.
    fine = all(isinstance(x, float | None) or (type(x) is int and abs(x) < _LARGEST) for x in values)
    return "" if fine else "has metrics of the wrong type"


def _wrong_type(row: Any, kinds: Mapping[str, Any]) -> str:
    if not isinstance(row, dict):
        return "is not an object"
    for key, kind in kinds.items():
        if key not in row or not isinstance(row[key], kind) or isinstance(row[key], bool):
            return f"has no {key} of the right type"
        if isinstance(row[key], str) and not is_name(row[key]):
            return f"has a {key} that cannot be printed"
    return ""


def is_name(value: Any) -> bool:
    """Return whether a value is a text that a terminal shows unchanged."""
    return isinstance(value, str) and value.isprintable()


def check_links(experiment: Path) -> None:
    """Check that no link leads out of an experiment, in whose folders files are read, written and removed."""
    home = Path(os.path.realpath(experiment))
    for path in sorted(experiment.rglob("*")):
        inside = not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(home)
        text = f"'{printable(str(path))}' is a link that leads out of '{experiment}': replace it by its target"
        check_rules((inside, text), code="untrusted")
