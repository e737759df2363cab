"""Lottery tickets of several algebras, seeds and control arms: a grid whose rounds depend on one another."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from zoo.atomic import write_json
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError
from zoo.training.fit import Session, claim_on_rank_0, report_interruption, start_session
from zoo.training.folder import RunFolder, changed_options, write_config
from zoo.training.options import build, config_values
from zoo.training.processes import Processes
from zoo_experiments.arms import MAY_CHANGE, Arm, arms_of, check_lottery, experiment_name, lottery_points, resume_text
from zoo_experiments.executors import Here, make_executor
from zoo_experiments.grid import Grid, Point, Result, Row, execute
from zoo_experiments.options import Lottery
from zoo_experiments.results import FORMAT, TICKETS, check_links, is_name, read_tickets, row_problem
from zoo_experiments.round import train_round

DIVERGED = "training diverged"
"""The start of the message of a `zoo.training.callbacks.DivergenceError`."""


class Tickets(Grid):
    """The rounds of an experiment with lottery tickets; the same on all ranks.

    Attributes:
        metric: The reported metric, and whether to maximise (``max``) or minimise it (``min``).
        diverged: The arms whose training diverged, with the round and the reason.
        ended: Number of rounds that this process has reported.
        start: When the first of them began; 0 before.
    """

    def __init__(self, folder: Path, options: Lottery, task: str, processes: Processes) -> None:
        super().__init__(folder, lottery_points(options))
        self.options, self.task, self.processes = options, task, processes
        self.metric = ("loss", "min")
        self.diverged: list[tuple[Arm, int, str]] = []
        self.ended, self.start = 0, 0.0

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function on rank 0 and return its result on all ranks."""
        return self.processes.first(function)

    @property
    def rounds(self) -> int:
        """Number of rounds after round 0."""
        return self.options.rounds or 0

    def load(self, record: dict[str, Any]) -> None:
        """Load the results of an experiment that is resumed."""
        self.metric = record["metric"], record["mode"]
        known = {point.name for point in self.points}
        self.rows = {row["folder"]: row for row in record["rows"] if row["folder"] in known}
        for note in record["stopped"]:
            arm = next((arm for arm in arms_of(self.options) if arm.matches(note)), None)
            if arm is not None and note["reason"].startswith(DIVERGED):
                self.diverged.append((arm, note["round"], note["reason"]))

    def command(self, point: Point) -> list[str]:
        """Return the arguments of ``zoo`` that train a round in a separate process."""
        return ["lottery", "--resume", str(self.folder), "--only", point.name]

    def is_closed(self, point: Point) -> bool:
        """Return whether the arm of a round has ended, or the round has failed."""
        return super().is_closed(point) or self.stopped(point.axes["arm"]) is not None

    def stopped(self, arm: Arm) -> dict[str, Any] | None:
        """Return why an arm has no more rounds: its training diverged, or its validation metric collapsed."""
        note = arm.key
        for other, number, reason in self.diverged:
            if other == arm:
                return note | {"round": number, "reason": reason}
        name, maximise = self.metric[0], self.metric[1] == "max"
        start = self.rows[arm.ticket.point(0)]["val"].get(name) if arm.ticket.point(0) in self.rows else None
        collapse = self.options.collapse or (0.5 if maximise else 1.0)
        if start is None or start <= 0 or collapse == 1:
            return None
        limit = start * (1 - collapse) if maximise else start / (1 - collapse)
        for number in range(self.rounds):
            row = self.rows.get(arm.point(number))
            value = row["val"].get(name) if row else None
            if value is not None and (value < limit if maximise else value > limit):
                text = f"{name} {value:.4g} in validation is {'below' if maximise else 'above'} {limit:.4g}"
                return note | {"round": number, "reason": f"{text} (--collapse {collapse:g})"}
        return None

    def finish(self, point: Point) -> Row:
        """Read the row of a round, write lottery.json, and remove the training checkpoints of the round."""
        self.processes.smallest(0)  # a barrier: every rank has read what is removed now
        row, self.metric = self.first(lambda: self._read(point))
        self.rows[point.name] = row
        self.first(self.write)
        self.first(lambda: shutil.rmtree(self.path(point) / "checkpoints", ignore_errors=True))
        return row

    def read_row(self, point: Point) -> Row:
        """Read the row of a round from its summary."""
        return self._read(point)[0]

    def _read(self, point: Point) -> tuple[Row, tuple[str, str]]:
        """Return the row of a round, and the reported metric."""
        arm, file = point.axes["arm"], self.path(point) / "summary.json"
        summary = read_json(file)
        note = summary["lottery"] if isinstance(summary.get("lottery"), dict) else {}
        row = arm.key | {"round": point.axes["round"]}
        row |= {name: note.get(name) for name in ("survivors", "weights", "real_weights", "val")}
        row |= {"test": summary.get("metrics"), "epoch": note.get("epoch"), "seconds": summary.get("seconds")}
        row |= {"folder": point.name}
        metric, mode = note.get("metric"), note.get("mode")
        if problem := row_problem(row) or ("" if is_name(metric) and mode in ("min", "max") else "has no metric"):
            raise InputError(f"'{file}' is not the summary of a round (it {problem}): start a new experiment", code="corrupt")
        return row, (str(metric), str(mode))

    def results(self) -> dict[str, Any]:
        """Return the content of lottery.json."""
        options = self.options
        record: dict[str, Any] = {"format": FORMAT, "backbone": options.backbone, "data": options.data, "task": self.task}
        record |= {"metric": self.metric[0], "mode": self.metric[1], "rate": options.rate, "rounds": self.rounds}
        stopped = [note for arm in arms_of(options) if (note := self.stopped(arm))]
        pruning = config_values(options)["pruning"]
        record |= {"pruning": pruning, "rows": self.sorted_rows(), "stopped": stopped}
        return record | {"left": len(self.remaining())}

    def write(self) -> None:
        """Write lottery.json."""
        write_json(self.folder / TICKETS, self.results())

    def begin(self) -> bool:
        """Print what will be trained, once; return whether this is the first call."""
        is_first = not self.start
        if is_first:
            self.start = time.monotonic()
            self.say(plan_text(self))
        return is_first

    def say(self, text: str) -> None:
        """Print a line on rank 0."""
        if self.processes.rank == 0:
            print(text, flush=True)  # noqa: T201 (its purpose)

    def report(self, point: Point) -> None:
        """Print the result of a round, or why it failed or its arm has ended; note an arm whose training diverged."""
        arm, number, reason = point.axes["arm"], point.axes["round"], self.failed.get(point.name, "")
        self.ended += 1
        if reason.startswith(DIVERGED):
            self.diverged.append((arm, number, reason.partition(" (log:")[0]))
            self.first(self.write)
        if row := self.rows.get(point.name):
            left = len(self.remaining())
            seconds = (time.monotonic() - self.start) / self.ended * left
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
    task, config = str(planned.options.task or planned.data.task), config_values(options)
    with (
        start_session(planned) as session,
        claim_on_rank_0(config, options.run_dir, options.resume, session.processes, experiment_name(options)) as folder,
        report_interruption(folder, lambda path, trained: resume_text(path)),
    ):
        try:
            grid = Tickets(folder.path, options, task, session.processes)
            if record := grid.first(lambda: open_folder(folder, options)):
                grid.load(record)
            train_all(grid, session)
        except BaseException:
            if resume_text(folder.path) is None:
                folder.discard()
            raise
    return grid.results() | {"run_dir": str(folder.path)}


def train_one(options: Lottery) -> dict[str, Any]:
    """Train one round of an experiment whose results another process writes."""
    name, folder = str(options.only), Path(options.resume or "")
    options, planned = check_lottery(replace(options, only=None))
    point = next((point for point in lottery_points(options) if point.name == name), None)
    if point is None or options.resume in (None, "auto"):
        raise InputError(f"--only {name}: use --resume EXPERIMENT and the folder of one of its rounds", code="unknown")
    with start_session(planned) as session:
        grid = Tickets(folder.expanduser(), options, "", session.processes)
        if not grid.is_finished(point):
            train_round(grid.folder, options, point, session, lambda: True)
    return {}


def open_folder(folder: RunFolder, options: Lottery) -> dict[str, Any] | None:
    """Write config.yaml and return the results of an experiment that is resumed; on rank 0."""
    record, path = None, folder.path / TICKETS
    if folder.resumed:
        check_links(folder.path)
        for name, old, new in changed_options(folder.path, config_values(options), MAY_CHANGE):
            text = f"the experiment '{folder.path}' has {name}={old}, not {new}: start a new one"
            raise InputError(f"{text} (you can add rounds, seeds, algebras and controls)", code="mismatch")
        if path.exists():
            try:
                record = read_tickets(path)
            except InputError as error:
                raise InputError(f"{error}; delete the file to rebuild it", code="corrupt") from error
        for row in record["rows"] if record else ():
            shutil.rmtree(folder.path / row["folder"] / "checkpoints", ignore_errors=True)
    write_config(folder.path, config_values(options))
    return record


def train_all(grid: Tickets, session: Session) -> None:
    """Train all unfinished rounds, and print a line for each."""
    options = grid.options
    grid.first(grid.write)
    apart = options.jobs > 1 or options.on == "ray"
    if apart or not grid.remaining():
        grid.begin()

    def train(point: Point) -> None:
        if not grid.is_finished(point):
            train_round(grid.folder, options, point, session, grid.begin)

    execute(grid, make_executor(options) if apart else Here(train), grid.report)
    if not grid.rows:
        raise InputError("; ".join(dict.fromkeys(grid.failed.values())), code="failed")


def duration(seconds: float) -> str:
    """Format a duration.

    >>> duration(40), duration(400), duration(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def plan_text(grid: Tickets) -> str:
    """Describe what will be trained."""
    options, count = grid.options, len(arms_of(grid.options))
    share = f"{options.rate:.0%}" if isinstance(options.rate, float) else options.rate
    prunes = f"prunes {share} of the remaining weights"
    if pattern := options.pruning.pattern:
        prunes = f"keeps {pattern[0]} of every {pattern[1]} weights"
    finished = f", {len(grid.rows)} finished" if grid.rows else ""
    rounds = f"round 0 with all weights, then {grid.rounds} round{'s' * (grid.rounds != 1)}, each of which {prunes}"
    arms = f"{count} arm{'s' * (count > 1)}: {rounds}"
    return f"{arms}; {len(grid.remaining())} trainings to go{finished}; results in {grid.folder}"


def format_round(grid: Tickets, arm: Arm, row: Row) -> str:
    """Format the result of a round."""
    name = grid.metric[0]
    parts = [f"{row['survivors'] / row['weights']:.1%} of {row['weights']:,} weights"]
    if (value := row["val"].get(name)) is not None:
        parts.append(f"val {name} {value:.4g} (epoch {row['epoch']})")
    if (value := row["test"].get(name)) is not None:
        parts.append(f"test {name} {value:.4g}")
    return f"{arm.title}, round {row['round']}/{grid.rounds}: {', '.join(parts)}, {duration(row['seconds'])}"
