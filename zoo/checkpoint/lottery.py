"""``lottery.json``, which says what the rounds of an experiment with lottery tickets came to; it may be a stranger's."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError, printable

RESULTS = "lottery.json"
FORMAT = 1
_LARGEST = 2**60
_FOLDER = re.compile(r"(?!\.+/)[\w.-]+/seed-\d+/round-\d+")
"""Folder of a round in that of the experiment: files are removed and read there, and it is printed in a command."""
_ARM: dict[str, type | tuple[type, ...]] = {"algebra": str, "control": (str, type(None)), "seed": int, "round": int}
_ROW = {**_ARM, "survivors": int, "weights": int, "real_weights": int, "folder": str}
_ROW |= {"epoch": (int, type(None)), "seconds": (int, float)}
_STOPPED = {**_ARM, "reason": str}


def read_results(path: Path) -> dict[str, Any]:
    """Read ``lottery.json``.

    Raises:
        InputError: If it is missing, of another version, or damaged.
    """
    record = read_json(path)
    if record.get("format") != FORMAT:
        raise InputError(f"{path} has format {record.get('format')!r:.20}, this version reads {FORMAT}")
    wrong = [key for key in ("metric", "data", "backbone") if not is_name(record.get(key))]
    wrong += [] if record.get("mode") in ("min", "max") else ["mode"]
    wrong += [] if _has_patterns(record.get("pruning")) else ["pruning"]
    if wrong:
        raise InputError(f"{path} has no {wrong[0]} of the right kind: it is damaged")
    for key, check in (("rows", row_problem), ("stopped", _stopped_problem)):
        if not isinstance(record.get(key), list):
            raise InputError(f"{path} has no {key}: it is damaged")
        for number, row in enumerate(record[key]):
            if problem := check(row):
                raise InputError(f"{path}: {key}[{number}] {problem}: it is damaged")
    keys = Counter((row["algebra"], row["control"], row["seed"], row["round"]) for row in record["rows"])
    if twice := [key for key, count in keys.items() if count > 1]:
        raise InputError(f"{path} has two rows of {printable(str(twice[0]))}: it is damaged")
    return record


def check_links(experiment: Path) -> None:
    """Check that no link leads out of an experiment: files are read, written and removed in its folders.

    Raises:
        InputError: If one does.
    """
    home = Path(os.path.realpath(experiment))
    for path in sorted(experiment.rglob("*")):
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):
            text = f"'{printable(str(path))}' is a link that leads out of '{experiment}': put what it leads to in its place"
            raise InputError(text)


def is_name(value: Any) -> bool:
    """Return whether a value is a text that a terminal shows as it is."""
    return isinstance(value, str) and value.isprintable()


def row_problem(row: Any) -> str:
    """Say what is wrong with a row, or nothing."""
    if problem := _wrong_kind(row, _ROW):
        return problem
    survivors, weights, real = row["survivors"], row["weights"], row["real_weights"]
    counts = 0 <= survivors <= weights and 0 < weights < _LARGEST and 0 < real < _LARGEST
    if not counts or not 0 <= row["round"] < 1000:
        return "has counts that cannot be"
    if not _FOLDER.fullmatch(row["folder"]):
        return "has a folder that is none of a round"
    return "" if all(_is_metrics(row.get(split)) for split in ("val", "test")) else "has metrics of the wrong kind"


def _has_patterns(pruning: Any) -> bool:
    """Whether the options of pruning say which parameters they are of, if they say it, in the right kind."""
    if not isinstance(pruning, dict):
        return False
    lists = [pruning.get(key, []) for key in ("include", "exclude")]
    return all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in lists)


def _stopped_problem(one: Any) -> str:
    return _wrong_kind(one, _STOPPED)


def _wrong_kind(row: Any, kinds: Mapping[str, type | tuple[type, ...]]) -> str:
    if not isinstance(row, dict):
        return "is no object"
    for key, kind in kinds.items():
        if key not in row or not isinstance(row[key], kind) or isinstance(row[key], bool):
            return f"has no {key} of the right kind"
        if isinstance(row[key], str) and not is_name(row[key]):
            return f"has a {key} that cannot be printed"
    return ""


def _is_metrics(values: Any) -> bool:
    """Whether metrics are numbers, or None where one is not finite; a whole number may be too large for a float."""
    if not isinstance(values, dict):
        return False
    return all(isinstance(one, float | None) or (type(one) is int and abs(one) < _LARGEST) for one in values.values())
