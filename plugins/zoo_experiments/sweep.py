"""Sweeps: the grid of runs that a YAML file describes (see docs/sweeps.md), and the folder of their results."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from zoo.atomic import write_text
from zoo.checkpoint.manifest import number
from zoo.checkpoint.run_config import flat
from zoo.errors import InputError
from zoo.registry.resolution import named_options
from zoo.training.folder import RUNS, claim, file_name, lock_folder, read_summary
from zoo.training.options import SPECS
from zoo.training.processes import Signals
from zoo.training.resolve import plan_run
from zoo.training.trainer import check_trainer
from zoo_experiments.grid import Executor, Grid, Point, check_saved, check_size, execute, processes, with_resume_hint
from zoo_experiments.options import Sweep

ROWS = "results.jsonl"
"""One line of JSON for each finished run, in the order of the grid."""
Row = dict[str, Any]
FROM_SUMMARY = ("metrics", "validation", "parameters", "epochs", "seconds", "task", "data_sha256", "versions", "device", "std")
_NEEDED = {"name", "axes", "options", "metrics", "parameters"}


# --- the file ---


def sweep_points(values: Mapping[str, object], file: str) -> list[Point]:
    """Return the runs of a sweep, after checking their options; the last axis changes fastest."""
    unknown = set(values) - {"base", "axes", "exclude"}
    if unknown:
        raise InputError(f"'{file}': unknown key {min(unknown, default='')}; use base, axes and exclude", code="unknown")
    with well_formed(file):
        points = list(grid_points(values, file))
    names = {point.name.casefold() for point in points if point.name}
    if not points or not values.get("axes"):
        raise InputError(f"'{file}' has no runs: it has no axis, an axis is empty, or exclude matches all of them")
    if len(names) != len(points):
        raise InputError(f"'{file}': the labels do not give every run its own folder name")
    for point in points:
        try:
            for name in ("run_dir", "resume"):
                if getattr(point.fit, name) is not None:
                    raise InputError(f"leave {name} out: a sweep has its own folder, --run-dir", code="conflict")
            check_saved(point.fit)
            check_trainer(plan_run(point.fit).options.trainer)
        except InputError as error:
            raise InputError(f"'{file}', run {point.name}: {error}", code=error.code) from error
    return points


@contextmanager
def well_formed(file: str) -> Iterator[None]:
    """Raise `InputError` where a value of a file has another type."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        text = f"'{file}': base must be options by name; each axis a list of values, or LABEL: {{OPTIONS}}; exclude a list"
        raise InputError(text) from error


def grid_points(values: Mapping[str, Any], file: str) -> Iterator[Point]:
    """Yield the runs of a sweep without checking their options."""
    base, axes = nested(values.get("base") or {}), values.get("axes") or {}
    labels = {axis: labeled_options(axis, choices) for axis, choices in axes.items()}
    exclude = [{axis: as_labels(choices) for axis, choices in entry.items()} for entry in values.get("exclude") or []]
    for axis, label in [(axis, label) for entry in exclude for axis, excluded in entry.items() for label in excluded]:
        if label not in labels.get(axis, ()):
            text = f"'{file}' excludes {axis}={label}, but the axes are {', '.join(labels)} with other labels"
            raise InputError(text, code="unknown")
    check_size(prod(map(len, labels.values())))
    for combination in product(*labels.values()):
        chosen = dict(zip(labels, combination, strict=True))
        if any(all(chosen[axis] in excluded for axis, excluded in entry.items()) for entry in exclude):
            continue
        options, setters = base, dict[str, str]()
        for axis, label in chosen.items():
            options = merged(options, labels[axis][label])
            for name in flat(labels[axis][label]):
                if name in setters:
                    raise InputError(f"'{file}': the axes {setters.get(name)} and {axis} both set {name}", code="conflict")
                setters[name] = axis
        bare = {axis for axis in axes if axis in SPECS or isinstance(axes[axis], Mapping)}  # their labels need no name
        parts = (label if axis in bare else f"{axis.rpartition('.')[2]}{label}" for axis, label in chosen.items())
        name = file_name("-".join(parts))
        yield Point(name, chosen, options)


def labeled_options(axis: str, choices: Any) -> dict[str, dict[str, Any]]:
    """Return the options of every value of an axis by label."""
    if isinstance(choices, Mapping):
        return {str(label): nested(options) for label, options in choices.items()}
    if not isinstance(choices, list):
        raise TypeError(f"{axis} is not a list")
    return {str(value): nested({axis: value}) for value in choices}


def as_labels(choices: object) -> list[str]:
    """Return the labels of a list of values, or of one value."""
    return [str(value) for value in choices] if isinstance(choices, list) else [str(choices)]


def nested(options: Mapping[str, object]) -> dict[str, Any]:
    """Return options with names such as ``optimizer.lr``, and the spec of an optimizer, as parts of ``optimizer``."""
    parts: dict[str, Any] = {}
    for name, value in options.items():
        head, _, tail = str(name).partition(".")
        value = named_options(value) if name in ("optimizer", "schedule") and isinstance(value, str) else value
        update(parts, {head: {tail: value}} if tail else {head: value})
    return parts


def merged(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, Any]:
    """Merge nested options; the second override the first."""
    both = deepcopy(dict(first))
    update(both, second)
    return both


def update(options: dict[str, Any], changes: Mapping[str, object]) -> None:
    """Override nested options in place."""
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(before := options.get(name), dict):
            update(before, value)
        else:
            options[name] = deepcopy(value)


# --- the folder ---


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a sweep; an empty list if there are none."""
    text = f"'{folder / ROWS}' is damaged: delete it to rebuild it from the runs"
    try:
        rows = [json.loads(line) for line in (folder / ROWS).read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise InputError(text, code="corrupt") from error
    if not all(isinstance(row, dict) and row.keys() >= _NEEDED for row in rows):
        raise InputError(text, code="corrupt")
    return rows


def known_rows(folder: Path, points: Sequence[Point]) -> dict[str, Row]:
    """Return the rows of a folder by the names of their runs; raise `InputError` if one belongs to another sweep."""
    options, rows = {point.name: point.options for point in points}, read_rows(folder)
    for row in rows:
        if options.get(row["name"]) != row["options"]:
            text = f"'{folder}' holds another sweep: its run '{row['name']}' is missing here or has other options"
            raise InputError(f"{text}; choose another --run-dir", code="mismatch")
    return {row["name"]: row for row in rows}


class SweepGrid(Grid[Row]):
    """The folder of a sweep, with the rows of its finished runs."""

    def __init__(self, folder: Path, points: Sequence[Point]) -> None:
        super().__init__(folder, points)
        self.rows |= known_rows(folder, points)
        self.load()
        self.write()

    def path(self, point: Point) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / point.name

    def read_row(self, point: Point) -> Row:
        """Read the row of a finished run from its summary."""
        values = read_summary(self.path(point)).to_json()
        row = {"name": point.name, "axes": dict(point.axes), "options": dict(point.options)}
        row |= {key: values[key] for key in FROM_SUMMARY if key in values}
        return row | {"folder": f"runs/{point.name}"}

    def write(self) -> None:
        """Write the rows in the order of the points."""
        write_text(self.folder / ROWS, "".join(json.dumps(row) + "\n" for row in self.sorted_rows()))


def sweep(
    values: Mapping[str, object],
    file: str,
    options: Sweep | None = None,
    *,
    say: Callable[[str], None] = print,
    finished: Callable[[Row], None] = lambda row: None,
    executor: Executor | None = None,
) -> dict[str, Any]:
    """Train the missing runs of a sweep and return the results of all of them.

    Interrupted runs resume from their last checkpoint. A run that fails is reported, and the others continue.

    Args:
        values: The content of the file: ``base``, ``axes`` and ``exclude``.
        file: The name of the file, for messages.
        options: Where to train which runs.
        say: Called with each line of progress.
        finished: Called with the row of each successful run.
        executor: Trains the runs; by default one that ends with the sweep.

    Returns:
        ``run_dir``, the ``rows`` of results.jsonl, and ``failed``, the reasons by name of the run.

    Raises:
        InputError: If the sweep is wrong, its folder holds another one, or the cluster cannot be reached.
        Interrupted: At Ctrl-C or SIGTERM; the text says how to resume.
    """
    options = options or Sweep()
    points = sweep_points(values, file)
    wanted = select(points, [name.strip() for name in options.only.split(",") if name.strip()], file)
    folder = Path(options.run_dir).expanduser() if options.run_dir is not None else RUNS / f"sweep-{file_name(Path(file).stem)}"
    files = [folder / ROWS, *(folder / "runs" / point.name / "config.yaml" for point in points)]
    with ExitStack() as stack:
        stack.enter_context(lock_folder(folder) if any(file.is_file() for file in files) else claim({}, str(folder)))
        grid = SweepGrid(folder, points)
        missing = [name for name in wanted if name not in grid.rows]

        def report(point: Point) -> None:
            row, ended = grid.rows.get(point.name), sum(name in grid.rows or name in grid.failed for name in missing)
            result = f": {format_run(row)}" if row else f" failed: {grid.failed[point.name]}"
            say(f"{ended}/{len(missing)} {point.name}{result}")
            if row:
                finished(row)

        def done() -> int:
            return sum(name in grid.rows for name in wanted)

        text = "runs are finished, repeat the command to resume"
        stack.enter_context(with_resume_hint(lambda: f"{done()} of {len(wanted)} {text}"))
        stack.enter_context(Signals())
        say(f"{len(wanted)} run{'s' * (len(wanted) != 1)}, {len(wanted) - len(missing)} finished; results in {folder}")
        if missing:
            execute(grid, executor or stack.enter_context(processes(options)), report, missing)
    return {"run_dir": str(folder), "rows": [grid.rows[name] for name in wanted if name in grid.rows], "failed": grid.failed}


def select(points: Sequence[Point], patterns: Sequence[str], file: str) -> list[str]:
    """Return the names of the runs that match one of the patterns; all of them without patterns."""
    names = [point.name for point in points]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise InputError(f"--only {pattern}: '{file}' has no such run; the first is '{names[0]}'", code="unknown")
    return [name for name in names if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def format_run(row: Mapping[str, Any]) -> str:
    """Format the result of a run on one line."""
    metrics = ", ".join(f"{name} {number(value)}" for name, value in row["metrics"].items())
    validation = row.get("validation") or {}
    value = validation.get("value")
    text = "not measured" if value is None else f"validation {validation['metric']} {number(value)}"
    return f"{f'test {metrics}' if metrics else text}; {row.get('seconds', 0):.0f} s"
