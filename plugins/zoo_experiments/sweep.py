"""Sweeps: the grid of runs that a file describes, and the folder of their results; every run is a process of ``zoo fit``."""

from __future__ import annotations

import fnmatch
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from zoo.checkpoint.atomic import write_text
from zoo.checkpoint.card import number
from zoo.checkpoint.sweep import RESULTS, read_rows, write_rows
from zoo.errors import InputError, Interrupted, Stop
from zoo.training.folder import RUNS, claim, config_values, decisive, file_name, hold, read_config, read_summary
from zoo.training.options import Fit, build
from zoo.training.resolve import plan
from zoo.training.signals import Signals
from zoo_experiments.executors import make_executor
from zoo_experiments.grid import Grid, Point, Row, execute
from zoo_experiments.options import Sweep, check_execution
from zoo_experiments.sweep_file import GROUPS, points

FROM_SUMMARY = ("metrics", "validation", "parameters", "epochs", "seconds", "task", "data_sha256", "versions", "device", "std")


class SweepGrid(Grid):
    """The folder of a sweep.

    Args:
        folder: The folder, which exists.
        points: The runs of the sweep.

    Raises:
        InputError: If the folder has runs that the sweep does not have, or that had other options.
    """

    def __init__(self, folder: Path, points: Sequence[Point]) -> None:
        super().__init__(folder, points)
        path, known = folder / RESULTS, {point.name: point for point in points}
        for row in read_rows(path) if path.exists() else ():
            point = known.get(row["name"])
            if point is None or point.options != row["options"]:
                raise self._another(row["name"], "does not have" if point is None else "has other options for")
            self.rows[point.name] = row | {"axes": dict(point.axes)}  # an axis may have been renamed
        for point in points:
            if point.name not in self.rows and self.is_finished(point):
                trained = decisive(read_config(self.path(point)))  # perhaps by hand, with --resume and other options
                if trained != decisive(config_values(plan(build(Fit, point.options)).options)):
                    raise self._another(point.name, "has other options for")
                self.rows[point.name] = self.read_row(point)
        self.write()

    def _another(self, name: str, difference: str) -> InputError:
        text = f"'{self.folder}' holds another sweep, with a run '{name}' that this one {difference}: choose another --run-dir"
        return InputError(text, code="mismatch")

    def path(self, point: Point) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / point.name

    def command(self, point: Point) -> list[str]:
        """Write the configuration of a run; return the words after ``zoo`` that train or resume it."""
        config = self.folder / "configs" / f"{point.name}.yaml"
        config.parent.mkdir(parents=True, exist_ok=True)
        write_text(config, yaml.safe_dump(dict(point.options), sort_keys=False))
        return ["fit", "-c", str(config), "--run-dir", str(self.path(point)), "--resume", "auto"]

    def read_row(self, point: Point) -> Row:
        """Read the row of a finished run from its summary."""
        summary = read_summary(self.path(point))
        row = {"name": point.name, "axes": dict(point.axes), "options": dict(point.options)}
        row |= {key: summary[key] for key in FROM_SUMMARY if key in summary}
        return row | {"folder": f"runs/{point.name}"}

    def write(self) -> None:
        """Write the rows in the order of the points."""
        write_rows(self.folder / RESULTS, self.sorted_rows())


def sweep(
    values: Mapping[str, Any],
    file: str,
    options: Sweep | None = None,
    *,
    say: Callable[[str], None] = print,
    finished: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Train the missing runs of a sweep and return the results of all of them.

    Every run is a process of ``zoo fit`` in its own folder. A run that was stopped or killed resumes from its last checkpoint;
    one that fails is reported, and the others continue.

    Args:
        values: The sweep, see `zoo_experiments.sweep_file`.
        file: The name of its file.
        options: The folder, which of the runs are wanted, and where they are trained.
        say: Prints a line of progress.
        finished: Called with the row of each run that ends well.

    Returns:
        ``run_dir``, the ``rows`` of results.jsonl, and ``failed``, the reason by name of the run.

    Raises:
        InputError: If the sweep is wrong, its folder holds another one, or the cluster cannot be reached.
        Interrupted: At Ctrl-C or SIGTERM; the text says how to resume.
    """
    options = options or Sweep()
    check_execution(options)
    grid = points(values, file)
    wanted = select(grid, [name.strip() for name in options.only.split(",") if name.strip()], file)
    folder = Path(options.run_dir).expanduser() if options.run_dir is not None else RUNS / f"sweep-{file_name(Path(file).stem)}"
    with ExitStack() as stack:
        begun = os.path.isfile(folder / RESULTS)
        stack.enter_context(hold(folder) if begun else claim(Fit("", "", run_dir=str(folder))))
        study = SweepGrid(folder, grid)
        missing = [name for name in wanted if name not in study.rows]
        say(f"{len(wanted)} runs, {len(wanted) - len(missing)} are done; everything is in {folder}")
        ended = 0

        def report(point: Point) -> None:
            nonlocal ended
            ended += 1
            if row := study.rows.get(point.name):
                say(f"{ended}/{len(missing)} {point.name}: {row_text(row)}")
                finished(row)
            else:
                say(f"{ended}/{len(missing)} {point.name} failed: {study.failed[point.name]}")

        signals = stack.enter_context(Signals())
        try:
            if missing:
                execute(study, make_executor(options), report, missing)
        except (Stop, KeyboardInterrupt) as stop:
            signum = getattr(stop, "signum", signals.received or signal.SIGINT)
            done = sum(name in study.rows for name in wanted)
            text = f"stopped; {done} of {len(wanted)} runs are done, give the same command again to resume"
            raise Interrupted(text, signum) from stop
    rows = [study.rows[name] for name in wanted if name in study.rows]
    return {"run_dir": str(folder), "rows": rows, "failed": study.failed}


def select(grid: Sequence[Point], patterns: Sequence[str], file: str) -> list[str]:
    """Return the names of the runs that match one of the patterns, or of all if there is none.

    A run also matches by the labels of its axes as they are written in the file, such as ``phm-4-seed0``.
    """
    names = {point.name: (point.name, typed_name(point)) for point in grid}
    for pattern in patterns:
        if not any(fnmatch.filter(pair, pattern) for pair in names.values()):
            close = get_close_matches(pattern, names, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"the first is '{grid[0].name}'"
            raise InputError(f"--only {pattern}: '{file}' has no such run: {hint}", code="unknown")
    return [name for name, pair in names.items() if not patterns or any(fnmatch.filter(pair, pattern) for pattern in patterns)]


def typed_name(point: Point) -> str:
    """Return the name of a run with its labels as typed: ``phm-4-seed0`` for ``phm-n4-seed0``."""
    return file_name("-".join(label if axis in GROUPS else f"{axis}{label}" for axis, label in point.axes.items()))


def row_text(row: Mapping[str, Any]) -> str:
    """Format the result of a run in a few words."""
    metrics = ", ".join(f"{name} {number(value)}" for name, value in row["metrics"].items() if value is not None)
    validation = row.get("validation") or {}
    measured = (
        "not measured"
        if validation.get("value") is None
        else f"validation {validation['metric']} {number(validation['value'])}"
    )
    return f"{f'test {metrics}' if metrics else measured}; {row.get('seconds', 0):.0f} s"
