"""Lottery tickets of several algebras, seeds and control arms: a grid whose rounds depend on one another."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.atomic import write_json
from zoo.errors import InputError, check_rules
from zoo.training.fit import NOTHING_SAVED, Session, claim_on_rank_0, start_session
from zoo.training.folder import changed_options, read_summary, write_config
from zoo.training.options import build, config_values
from zoo.training.processes import Processes
from zoo_experiments.arms import MAY_CHANGE, Arm, arms_of, check_lottery, experiment_name, lottery_points, resume_text
from zoo_experiments.executors import Here, make_executor
from zoo_experiments.grid import Grid, Point, Result, Row, execute, saying_how_to_resume
from zoo_experiments.options import Lottery
from zoo_experiments.results import FORMAT, TICKETS, read_tickets
from zoo_experiments.round import train_round

DIVERGED = "training diverged"
"""The start of the message of a `zoo.training.callbacks.DivergenceError`."""


class Tickets(Grid):
    """The rounds of an experiment with lottery tickets; the same on all ranks.

    Attributes:
        metric: The reported metric, and whether to maximise (``max``) or minimise it (``min``).
        diverged: The reasons of the rounds whose training diverged, by name.
    """

    def __init__(self, folder: Path, options: Lottery, task: str, processes: Processes) -> None:
        super().__init__(folder, lottery_points(options))
        self.options, self.task, self.processes = options, task, processes
        self.metric = ("loss", "min")
        self.diverged: dict[str, str] = {}
        self._ended, self._start = 0, time.monotonic()

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function on rank 0 and return its result on all ranks."""
        return self.processes.first(function)

    def load(self) -> None:
        """Read the results of an experiment that is resumed, and remove the training checkpoints of finished rounds."""
        self.rows, self.metric, self.diverged = self.first(self._load)

    def _load(self) -> tuple[dict[str, Row], tuple[str, str], dict[str, str]]:
        for name, old, new in changed_options(self.folder, config_values(self.options), MAY_CHANGE):
            text = f"the experiment '{self.folder}' has {name}={old}, not {new}: start a new one"
            raise InputError(f"{text} (you can add rounds, seeds, algebras and controls)", code="mismatch")
        rows, metric, path = dict[str, Row](), self.metric, self.folder / TICKETS
        diverged: dict[str, str] = {}
        if path.exists():
            record = read_tickets(path)
            names, metric = {point.name for point in self.points}, (record["metric"], record["mode"])
            rows = {row["folder"]: row for row in record["rows"] if row["folder"] in names}
            for point in self.points:
                key = point.axes["arm"].key | {"round": point.axes["round"]}
                notes = [note["reason"] for note in record["stopped"] if key.items() <= note.items()]
                if notes and notes[0].startswith(DIVERGED):
                    diverged[point.name] = notes[0]
        for point in self.points:
            if (self.path(point) / "summary.json").is_file():
                rows[point.name], metric = self._read(point)
                shutil.rmtree(self.path(point) / "checkpoints", ignore_errors=True)
        return rows, metric, diverged

    def command(self, point: Point) -> list[str]:
        """Return the arguments of ``zoo`` that train a round in a separate process."""
        return ["lottery", "--resume", str(self.folder), "--only", point.name]

    def is_closed(self, point: Point) -> bool:
        """Return whether the arm of a round has ended, or the round has failed."""
        return super().is_closed(point) or self.stopped(point.axes["arm"]) is not None

    def stopped(self, arm: Arm) -> dict[str, Any] | None:
        """Return why an arm has no more rounds: its training diverged, or its validation metric collapsed."""
        name, maximise = self.metric[0], self.metric[1] == "max"
        start = self.rows[arm.ticket.point(0)]["val"].get(name) if arm.ticket.point(0) in self.rows else None
        collapse = self.options.collapse or (0.5 if maximise else 1.0)
        can_collapse = start is not None and start > 0 and collapse < 1
        limit = 0.0
        if start is not None and can_collapse:
            limit = start * (1 - collapse) if maximise else start / (1 - collapse)
        rounds = self.options.rounds or 0
        for number in range(rounds + 1):
            if reason := self.diverged.get(arm.point(number)):
                return arm.key | {"round": number, "reason": reason}
            value = self.rows.get(arm.point(number), {"val": {}})["val"].get(name)
            if can_collapse and number < rounds and value is not None and (value < limit if maximise else value > limit):
                text = f"{name} {value:.4g} in validation is {'below' if maximise else 'above'} {limit:.4g}"
                return arm.key | {"round": number, "reason": f"{text} (--collapse {collapse:g})"}
        return None

    def finish(self, point: Point) -> None:
        """Read the row of a round, write lottery.json, and remove the training checkpoints of the round."""
        self.processes.smallest(0)  # a barrier: every rank has read what is removed now
        self.rows[point.name], self.metric = self.first(lambda: self._read(point))
        self.first(self.write)
        self.first(lambda: shutil.rmtree(self.path(point) / "checkpoints", ignore_errors=True))

    def read_row(self, point: Point) -> Row:
        """Read the row of a round from its summary."""
        return self._read(point)[0]

    def _read(self, point: Point) -> tuple[Row, tuple[str, str]]:
        """Return the row of a round, and the reported metric."""
        summary = read_summary(self.path(point), ["lottery", "seconds"])
        note = summary["lottery"]
        row = point.axes["arm"].key | {"round": point.axes["round"]}
        row |= {name: note[name] for name in ("survivors", "weights", "real_weights", "val")}
        row |= {"test": summary["metrics"], "epoch": note["epoch"], "seconds": summary["seconds"], "folder": point.name}
        return row, (note["metric"], note["mode"])

    def results(self) -> dict[str, Any]:
        """Return the content of lottery.json."""
        options = self.options
        record: dict[str, Any] = {"format": FORMAT, "backbone": options.backbone, "data": options.data, "task": self.task}
        record |= {"metric": self.metric[0], "mode": self.metric[1], "rate": options.rate, "rounds": options.rounds}
        stopped = [note for arm in arms_of(options) if (note := self.stopped(arm))]
        pruning = config_values(options)["pruning"]
        record |= {"pruning": pruning, "rows": self.sorted_rows(), "stopped": stopped}
        return record | {"left": len(self.remaining())}

    def write(self) -> None:
        """Write lottery.json."""
        write_json(self.folder / TICKETS, self.results())

    def say(self, text: str) -> None:
        """Print a line on rank 0."""
        if self.processes.rank == 0:
            print(text, flush=True)  # noqa: T201 (its purpose)

    def report(self, point: Point) -> None:
        """Print the result of a round, or why it failed or its arm has ended; note an arm whose training diverged."""
        arm, number, reason = point.axes["arm"], point.axes["round"], self.failed.get(point.name, "")
        self._ended += 1
        if reason.startswith(DIVERGED):
            self.diverged[point.name] = reason.partition(" (log:")[0]
            self.first(self.write)
        if row := self.rows.get(point.name):
            left = len(self.remaining())
            seconds = (time.monotonic() - self._start) / self._ended * left
            self.say(format_round(self, arm, row) + (f"; {left} to go, about {duration(seconds)}" if left else ""))
        if stopped := self.stopped(arm):
            self.say(f"{arm.title}: no more rounds, {stopped['reason']}")
        elif reason:
            self.say(f"{arm.title}, round {number} failed: {reason}")


def lottery(options: Lottery | Mapping[str, Any]) -> dict[str, Any]:
    """Train, prune and rewind in rounds, for every arm; return the content of ``lottery.json`` and ``run_dir``.

    Every round is a run of `zoo.training.fit` in its own folder with its own Trainer, in this process or with ``jobs`` or Ray
    in separate ones. The last weights of a round decide what is pruned; its model has the best weights by validation.

    Args:
        options: The options of the experiment, or a mapping by name.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
        Interrupted: At Ctrl-C or SIGTERM; the text says how to resume.
    """
    options = options if isinstance(options, Lottery) else build(Lottery, options)
    if options.only is not None:
        return train_one(options)
    options, planned = check_lottery(options)
    config = config_values(options)
    with (
        start_session(planned) as session,
        claim_on_rank_0(config, options.run_dir, options.resume, session.processes, experiment_name(options)) as folder,
        saying_how_to_resume(lambda: resume_text(folder.path) or NOTHING_SAVED),
    ):
        try:
            grid = Tickets(folder.path, options, str(planned.options.task or planned.data.task), session.processes)
            if folder.resumed:
                grid.load()
            grid.first(lambda: write_config(folder.path, config))
            train_all(grid, session)
        except BaseException:
            if resume_text(folder.path) is None:
                folder.discard()
            raise
    return grid.results() | {"run_dir": str(folder.path)}


def train_one(options: Lottery) -> dict[str, Any]:
    """Train one round of an experiment whose results another process writes."""
    name, folder = options.only, Path(options.resume or "").expanduser()
    options, planned = check_lottery(replace(options, only=None))
    points = [point for point in lottery_points(options) if point.name == name]
    check_rules((bool(points), f"--only {name}: use --resume EXPERIMENT and the folder of one of its rounds"), code="unknown")
    with start_session(planned) as session:
        train_round(folder, options, points[0], session)
    return {}


def train_all(grid: Tickets, session: Session) -> None:
    """Train all unfinished rounds, and print a line for each."""
    options = grid.options
    grid.first(grid.write)
    arms, left = len(arms_of(options)), len(grid.remaining())
    rounds = f"{arms} arm{'s' * (arms > 1)}, rounds 0 to {options.rounds}"
    grid.say(f"{rounds}: {left} trainings to go, {len(grid.rows)} finished; results in {grid.folder}")
    apart = options.jobs > 1 or options.on == "ray"
    here = Here(lambda point: train_round(grid.folder, options, point, session))
    execute(grid, make_executor(options) if apart else here, grid.report)
    if not grid.rows:
        raise InputError("; ".join(dict.fromkeys(grid.failed.values())), code="failed")


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(40), duration(400), duration(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_round(grid: Tickets, arm: Arm, row: Row) -> str:
    """Format the result of a round."""
    name = grid.metric[0]
    parts = [f"{row['survivors'] / row['weights']:.1%} of {row['weights']:,} weights"]
    if (value := row["val"].get(name)) is not None:
        parts.append(f"val {name} {value:.4g} (epoch {row['epoch']})")
    if (value := row["test"].get(name)) is not None:
        parts.append(f"test {name} {value:.4g}")
    return f"{arm.title}, round {row['round']}/{grid.options.rounds}: {', '.join(parts)}, {duration(row['seconds'])}"
