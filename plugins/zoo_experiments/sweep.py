"""Sweeps: the grid of runs that a file describes, and the folder of their results.

The file is YAML: a base configuration and axes. The values of an axis are values of an option, or labels with several options::

    base: {backbone: vit, data: digits, trainer: {max_epochs: 10}}
    axes:
      algebra: [real, quaternion, phm-4]
      rate: {low: {optimizer: {lr: 0.001}}, high: {optimizer: {lr: 0.003}}}
      seed: [0, 1, 2]
    exclude:
      - {algebra: real, rate: high}

``exclude`` leaves out all combinations that match one of its entries. Every run is a process of ``zoo fit``.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from zoo.atomic import write_text
from zoo.checkpoint.card import number
from zoo.errors import InputError, Interrupted, Stop, check_rules
from zoo.training.folder import RUNS, changed_options, claim, file_name, lock_folder, read_summary, short_spec
from zoo.training.options import TRAINER_ARGUMENTS, Fit, build, flat
from zoo.training.processes import Signals
from zoo.training.resolve import GROUPS, plan_run
from zoo_experiments.executors import make_executor
from zoo_experiments.grid import Grid, Point, Row, execute
from zoo_experiments.options import Sweep, check_execution
from zoo_experiments.results import ROWS, read_rows, write_rows

FILE_KEYS = ("base", "axes", "exclude")
FROM_SUMMARY = ("metrics", "validation", "parameters", "epochs", "seconds", "task", "data_sha256", "versions", "device", "std")


# --- the file ---


def sweep_points(values: Mapping[str, Any], file: str) -> list[Point]:
    """Return the runs of a sweep; the last axis changes fastest."""
    base, axes, exclude = read_parts(values, file)
    labels = {axis: dict(labelled_options(axis, choices, file)) for axis, choices in axes.items()}
    for entry in exclude:
        for axis, excluded in entry.items():
            wrong = [label for label in excluded if label not in labels.get(axis, {})]
            known = f"axis '{axis}' has {', '.join(labels[axis])}" if axis in labels else f"the axes are {', '.join(labels)}"
            check_rules((not wrong, f"'{file}' excludes {axis}={', '.join(wrong)}, but {known}"), code="unknown")
    runs: dict[str, Point] = {}
    for combination in product(*labels.values()):
        chosen = dict(zip(labels, combination, strict=True))
        if any(all(chosen[axis] in excluded for axis, excluded in entry.items()) for entry in exclude):
            continue
        options, setters = base, dict[str, str]()
        for axis, label in chosen.items():
            options = merged(options, labels[axis][label])
            for name in flat(labels[axis][label]):
                first = setters.setdefault(name, axis)
                check_rules((first == axis, f"axes '{first}' and '{axis}' of '{file}' both set {name}"), code="conflict")
        name = file_name("-".join(short(axis, label, axes[axis]) for axis, label in chosen.items()))
        text = f"'{file}': the labels {', '.join(combination)} do not give a unique folder name: use other letters or digits"
        check_rules((bool(name) and name.casefold() not in runs, text), code="conflict")
        runs[name.casefold()] = Point(name, chosen, options)
    check_rules((bool(runs), f"'{file}' excludes every run of its grid"))
    for point in runs.values():
        check_point(point, file)
    return list(runs.values())


def read_parts(values: Mapping[str, Any], file: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, list[str]]]]:
    """Return the base, the axes and the excluded labels of a file after checking their types."""
    for key in values:
        hint = "".join(f"; did you mean '{close}'?" for close in get_close_matches(str(key), FILE_KEYS, 1))
        text = f"unknown key '{key}' in the sweep '{file}', which has {', '.join(FILE_KEYS)}{hint}"
        check_rules((key in FILE_KEYS, text), code="unknown")
    base, axes, exclude = values.get("base") or {}, values.get("axes", {}), values.get("exclude") or []
    entries = isinstance(exclude, list) and all(isinstance(entry, dict) and entry for entry in exclude)
    check_rules(
        (isinstance(base, dict), f"base of the sweep '{file}' must be options of zoo fit by name"),
        (isinstance(axes, dict) and bool(axes), f"the sweep '{file}' has no axes: write axes: {{algebra: [real, ...]}}"),
        (entries, f"exclude of the sweep '{file}' must be a list such as [{{algebra: real}}]"),
    )
    for axis, choices in axes.items():
        text = f"axis '{axis}' of the sweep '{file}' needs a list of values, or options by label"
        check_rules((isinstance(choices, list | dict) and bool(choices), text))
    lists = [{axis: x if isinstance(x, list) else [x] for axis, x in entry.items()} for entry in exclude]
    excluded = [{axis: [str(label) for label in labels] for axis, labels in entry.items()} for entry in lists]
    return nested(base), {str(axis): choices for axis, choices in axes.items()}, excluded


def labelled_options(axis: str, choices: Sequence[Any] | Mapping[str, Any], file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the label and the options of every value of an axis."""
    if isinstance(choices, Mapping):
        for label, options in choices.items():
            text = f"'{label}' of axis '{axis}' in '{file}' must be options of zoo fit by name"
            check_rules((isinstance(options, dict), text))
            yield str(label), nested(options)
        return
    if axis not in (known := option_names()):
        close = get_close_matches(axis, known, 1) or [name for name in known if name.rpartition(".")[2] == axis][:1]
        hint = f"did you mean '{close[0]}'?" if close else "zoo fit --help lists them; or label its values, LABEL: {OPTIONS}"
        raise InputError(f"axis '{axis}' of the sweep '{file}' is not an option of zoo fit: {hint}", code="unknown")
    check_rules((len(set(map(str, choices))) == len(choices), f"axis '{axis}' of the sweep '{file}' repeats a value"))
    for value in choices:
        yield str(value), nested({axis: value})


def option_names() -> list[str]:
    """Return the options of a run by the names of their flags."""
    hints, names = get_type_hints(Fit), list[str]()
    for option in fields(Fit):
        kind = hints[option.name]
        names += [f"{option.name}.{part.name}" for part in fields(kind)] if is_dataclass(kind) else [option.name]
    names = [name for name in names if name not in ("run_dir", "resume", "trainer")]
    return names + [f"trainer.{name}" for name in TRAINER_ARGUMENTS]


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with names such as ``optimizer.lr`` as parts of ``optimizer``."""
    parts: dict[str, Any] = {}
    for name, value in options.items():
        head, _, tail = str(name).partition(".")
        parts = merged(parts, {head: {tail: value}} if tail else {head: value})
    return parts


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested options; the second override the first."""
    both = {
        name: merged(first[name], value) if isinstance(value, dict) and isinstance(first.get(name), dict) else value
        for name, value in second.items()
    }
    return {**first, **both}


def short(axis: str, label: str, choices: Any) -> str:
    """Return the part of a run's name for an axis: quaternion, seed0, lr0.001."""
    if isinstance(choices, Mapping):
        return label
    return short_spec(GROUPS[axis], label) if axis in GROUPS else f"{axis.rpartition('.')[2]}{label}"


def check_point(point: Point, file: str) -> None:
    """Check the options of a run as far as ``zoo fit`` does before it reads data."""
    options, trainer = point.options, point.options.get("trainer") or {}
    missing = [name for name in ("backbone", "algebra") if not options.get(name)]
    check_rules((not missing, f"the sweep '{file}' has no {' and '.join(missing)}: add it to base or axes"), code="missing")
    taken = [name for name in ("run_dir", "resume") if name in options]
    check_rules((not taken, f"'{file}' sets {', '.join(taken)}: every run gets its own folder"), code="conflict")
    for name, value in flat(options).items():
        text = f"'{file}': YAML reads {name}={value} as text, write {str(value).lower().replace('e', '.0e')}"
        check_rules((not (isinstance(value, str) and re.fullmatch(r"[+-]?\d+e[+-]?\d+", value, re.I)), text))
    unknown = {str(name) for name in trainer} - set(TRAINER_ARGUMENTS) if isinstance(trainer, dict) else set()
    text = f"'{file}': unknown argument 'trainer.{min(unknown, default='')}' of Lightning's Trainer"
    check_rules((not unknown, text), code="unknown")
    try:
        plan_run(build(Fit, options), try_network=True)
        json.dumps(options, allow_nan=False)
    except InputError as error:
        raise InputError(f"'{file}', run {point.name}: {error}", code=error.code) from error
    except (TypeError, ValueError) as error:
        raise InputError(f"'{file}', run {point.name}: {ROWS} cannot store an option: {error}") from error


# --- the folder ---


class SweepGrid(Grid):
    """The folder of a sweep."""

    def __init__(self, folder: Path, points: Sequence[Point]) -> None:
        super().__init__(folder, points)
        path, known = folder / ROWS, {point.name: point for point in points}
        for row in read_rows(path) if path.exists() else ():
            point = known.get(row["name"])
            self._check_same(row["name"], point is not None and point.options == row["options"])
            self.rows[row["name"]] = row | {"axes": dict(known[row["name"]].axes)}  # an axis may have been renamed
        for point in points:
            if point.name not in self.rows and self.is_finished(point):
                # It may have been trained by hand, with --resume and other options.
                self._check_same(point.name, not changed_options(self.path(point), plan_run(build(Fit, point.options)).config))
                self.rows[point.name] = self.read_row(point)
        self.write()

    def _check_same(self, run: str, same: bool) -> None:
        text = f"'{self.folder}' holds another sweep: its run '{run}' is missing here or has other options"
        check_rules((same, f"{text}; choose another --run-dir"), code="mismatch")

    def path(self, point: Point) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / point.name

    def command(self, point: Point) -> list[str]:
        """Write the configuration of a run; return the arguments of ``zoo`` that train or resume it."""
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
        write_rows(self.folder / ROWS, self.sorted_rows())


def sweep(
    values: Mapping[str, Any],
    file: str,
    options: Sweep | None = None,
    *,
    say: Callable[[str], None] = print,
    finished: Callable[[Row], None] = lambda row: None,
) -> dict[str, Any]:
    """Train the missing runs of a sweep and return the results of all of them.

    Interrupted runs resume from their last checkpoint. A run that fails is reported, and the others continue.

    Args:
        values: The content of the file, see the module's docstring.
        file: The name of the file, for messages.
        options: Where to train which runs.
        say: Called with each line of progress.
        finished: Called with the row of each successful run.

    Returns:
        ``run_dir``, the ``rows`` of results.jsonl, and ``failed``, the reasons by name of the run.

    Raises:
        InputError: If the sweep is wrong, its folder holds another one, or the cluster cannot be reached.
        Interrupted: At Ctrl-C or SIGTERM; the text says how to resume.
    """
    options = options or Sweep()
    check_execution(options)
    runs = sweep_points(values, file)
    wanted = select(runs, [name.strip() for name in options.only.split(",") if name.strip()], file)
    folder = Path(options.run_dir).expanduser() if options.run_dir is not None else RUNS / f"sweep-{file_name(Path(file).stem)}"
    with ExitStack() as stack:
        begun = os.path.isfile(folder / ROWS)
        stack.enter_context(lock_folder(folder) if begun else claim({}, str(folder)))
        grid = SweepGrid(folder, runs)
        missing = [name for name in wanted if name not in grid.rows]
        say(f"{len(wanted)} runs, {len(wanted) - len(missing)} finished; results in {folder}")
        ended = 0

        def report(point: Point) -> None:
            nonlocal ended
            ended += 1
            row = grid.rows.get(point.name)
            result = f": {format_run(row)}" if row else f" failed: {grid.failed[point.name]}"
            say(f"{ended}/{len(missing)} {point.name}{result}")
            if row:
                finished(row)

        signals = stack.enter_context(Signals())
        try:
            if missing:
                execute(grid, make_executor(options), report, missing)
        except (Stop, KeyboardInterrupt) as stop:
            signum = getattr(stop, "signum", signals.received or signal.SIGINT)
            done = sum(name in grid.rows for name in wanted)
            raise Interrupted(
                f"stopped; {done} of {len(wanted)} runs are finished, repeat the command to resume", signum
            ) from stop
    return {"run_dir": str(folder), "rows": [grid.rows[name] for name in wanted if name in grid.rows], "failed": grid.failed}


def select(runs: Sequence[Point], patterns: Sequence[str], file: str) -> list[str]:
    """Return the names of the runs that match one of the patterns; all of them without patterns.

    The labels as written in the file match too, such as ``phm-4-seed0`` for the run ``phm-n4-seed0``.
    """
    names: dict[str, tuple[str, str]] = {}
    for point in runs:
        typed = "-".join(label if axis in GROUPS else f"{axis}{label}" for axis, label in point.axes.items())
        names[point.name] = point.name, file_name(typed)
    for pattern in patterns:
        if not any(fnmatch.filter(pair, pattern) for pair in names.values()):
            close = get_close_matches(pattern, names, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"the first is '{runs[0].name}'"
            raise InputError(f"--only {pattern}: '{file}' has no such run: {hint}", code="unknown")
    return [name for name, pair in names.items() if not patterns or any(fnmatch.filter(pair, pattern) for pattern in patterns)]


def format_run(row: Mapping[str, Any]) -> str:
    """Format the result of a run on one line."""
    metrics = ", ".join(f"{name} {number(value)}" for name, value in row["metrics"].items() if value is not None)
    validation = row.get("validation") or {}
    value = validation.get("value")
    text = "not measured" if value is None else f"validation {validation['metric']} {number(value)}"
    return f"{f'test {metrics}' if metrics else text}; {row.get('seconds', 0):.0f} s"
