"""Lottery tickets of several algebras, seeds and control arms: a grid whose rounds depend on one another."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from zoo.atomic import write_json
from zoo.checkpoint.run_config import FREE, changed_options, read_run_config
from zoo.errors import InputError, check_choice
from zoo.pruning import LotteryTicket, rounds_until
from zoo.registry import build_options
from zoo.registry.spec import Spec, split_at_commas
from zoo.training.folder import claim_on_rank_0, read_summary, run_name, write_config
from zoo.training.options import Fit, config_values
from zoo.training.processes import Processes
from zoo.training.resolve import Plan, plan_run
from zoo.training.session import NOTHING_SAVED, Session, start_session
from zoo.training.trainer import as_list
from zoo_experiments.grid import Grid, InProcess, Point, Result, check_size, execute, processes, with_resume_hint
from zoo_experiments.options import Lottery
from zoo_experiments.round import Arm, folder_name, resume_text, ticket_options, train_round
from zoo_experiments.rows import GridRow, LotteryResults, StoppedArm

TICKETS = "lottery.json"
"""The file of the rows of the finished rounds, which is written after each round."""
DIVERGED = "training diverged"
"""The start of the message of a `zoo.training.checkpoints.DivergenceError`."""
MAY_CHANGE = {"algebra", "compare", "controls", "seeds", "rounds", "until", "collapse", *FREE}
"""Options that may change on resume."""
_ROUNDS, _MOST_ROUNDS = 10, 200


# --- options and points ---


def check_lottery(options: Lottery) -> tuple[Lottery, Plan]:
    """Check the options; return them with all defaults filled in, and the plan of the first arm.

    On resume, algebras and controls are added to those of the experiment.
    """
    before = read_run_config(Path(options.resume).expanduser()) if options.resume not in (None, "auto") else {}
    if before and "rate" not in before:
        text = f"'{options.resume}' is a single run, not an experiment with lottery tickets: use the folder with {TICKETS}"
        raise InputError(text, code="mismatch")
    names = _merge_names([options.algebra] if options.algebra else [], _merge_names(before.get("compare"), options.compare))
    options = replace(options, controls=_merge_names(before.get("controls"), options.controls))
    _check_options(options)
    rounds = options.rounds if options.rounds is not None else 1 if options.pruning.pattern else _ROUNDS
    if options.until is not None:
        rounds = rounds_until(options.until, options.rate) - (options.pruning.score == "snip")  # which prunes in round 0
    if not 0 <= rounds <= _MOST_ROUNDS:
        raise InputError(f"rounds={rounds}: must be between 0 and {_MOST_ROUNDS}")
    check_size(len(names) * (1 + len(options.controls)) * options.seeds * (rounds + 1))
    plans = [plan_run(replace(options, algebra=name, rounds=rounds, until=None)) for name in names]
    algebras = {folder_name(planned.options.algebra): planned.options.algebra for planned in plans}  # phm-4 is phm(n=4)
    filled = plans[0].options
    assert isinstance(filled, Lottery)
    return replace(filled, algebra="", compare=tuple(algebras.values())), plans[0]


def _check_options(options: Lottery) -> None:
    """Check the options that a single round does not have, and refuse those that rounds do not support."""
    LotteryTicket(**ticket_options(options, 0))
    for name in options.controls:
        check_choice("control", name, ("random", "reinit"))
    pretrained = options.init_from or Spec.parse(options.backbone).options.get("pretrained")
    writes = options.trainer.get("enable_checkpointing") is not False and not options.trainer.get("fast_dev_run")
    if pretrained and "reinit" in options.controls:
        raise InputError("--controls reinit excludes pretrained weights", code="conflict")
    if options.folds is not None:
        raise InputError("--folds is not supported: a round is one training", code="conflict")
    for item in as_list(options.trainer.get("callbacks")):
        if isinstance(item, Callback) and item.state_dict():  # from which the next round would start
            text = f"{type(item).__name__} has a state: describe it by class_path, because every round builds its own"
            raise InputError(text)
    if not writes:
        raise InputError(
            "rounds need training checkpoints: leave --trainer.enable_checkpointing and fast_dev_run out", code="conflict"
        )


def _merge_names(first: Any, second: Any) -> tuple[str, ...]:
    """Return the names of two lists without repetitions; a string is a list separated by commas."""
    lists = (split_at_commas(names) if isinstance(names, str) else names or () for names in (first, second))
    return tuple(dict.fromkeys(name for names in lists for name in names))


def _experiment_name(options: Lottery) -> str:
    """Name the folder of an experiment after the run of its first algebra, and the other algebras."""
    first, *others = options.compare
    return "-".join(["lottery", run_name(config_values(replace(options, algebra=first))), *map(folder_name, others)])


def arms_of(options: Lottery) -> list[Arm]:
    """Return the arms in training order: one seed of all algebras with their controls, then the next seed."""
    return [
        Arm(algebra, control, seed)
        for seed in range(options.seed, options.seed + options.seeds)
        for algebra in options.compare
        for control in (None, *options.controls)
    ]


def lottery_points(options: Lottery) -> list[Point]:
    """Return the rounds of all arms; a round follows the previous one, and that of a control its ticket's round.

    A control has no dense round.
    """
    points, shared = [], {option.name: getattr(options, option.name) for option in fields(Fit)}
    for arm in arms_of(options):
        start = int(arm.control is not None and options.pruning.score != "snip")
        run = Fit(**shared | {"algebra": arm.algebra, "seed": arm.seed, "run_dir": None, "resume": None})
        for number in range(start, (options.rounds or 0) + 1):
            after = [arm.ticket.point(number)] if arm.control else []
            after += [arm.point(number - 1)] if number > start else []
            points.append(Point(arm.point(number), {"arm": arm, "round": number}, run, tuple(after)))
    return points


# --- the experiment ---


class Tickets(Grid[GridRow]):
    """The rounds of an experiment with lottery tickets; the same on all ranks."""

    def __init__(self, folder: Path, options: Lottery, task: str, processes: Processes) -> None:
        super().__init__(folder, lottery_points(options))
        self.options, self.task, self.processes = options, task, processes

    @property
    def metric(self) -> tuple[str, str]:
        """The reported metric, and whether to maximize (``max``) or minimize it (``min``)."""
        row = next(iter(self.rows.values()), None)
        return ("loss", "min") if row is None else (row.metric, row.mode)

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function on rank 0 and return its result on all ranks."""
        return self.processes.first(function)

    def finished_rows(self) -> dict[str, GridRow]:
        """Read the rows of an experiment that is resumed, and remove the training checkpoints of its finished rounds."""
        for name, old, new in changed_options(self.folder, config_values(self.options), MAY_CHANGE):
            text = f"the experiment '{self.folder}' has {name}={old}, not {new}: start a new one"
            raise InputError(f"{text} (you can add rounds, seeds, algebras and controls)", code="mismatch")
        rows = super().finished_rows()
        for point in self.points:
            if point.name in rows:
                self._remove_checkpoints(point)
        return rows

    def read_row(self, point: Point) -> GridRow:
        """Read the row of a round from its summary."""
        summary = read_summary(self.path(point), ["lottery", "seconds"])
        values = point.axes["arm"].key | (summary.lottery or {})
        values |= {"test": summary.metrics, "seconds": summary.seconds, "folder": point.name}
        message = f"'{self.path(point)}' has no results of a round: delete the folder to repeat the round"
        return GridRow.from_json(values, message)

    def finish(self, point: Point) -> None:
        """Read the row of a round, write lottery.json, and remove the training checkpoints of the round."""
        self.processes.smallest(0)  # a barrier: every rank has read what is removed now
        super().finish(point)
        self.first(lambda: self._remove_checkpoints(point))

    def _remove_checkpoints(self, point: Point) -> None:
        shutil.rmtree(self.path(point) / "checkpoints", ignore_errors=True)

    def command(self, point: Point) -> list[str]:
        """Return the arguments of ``zoo`` that train a round in a separate process."""
        return ["lottery", "--resume", str(self.folder), "--only", point.name]

    def is_closed(self, point: Point) -> bool:
        """Return whether the arm of a round has ended."""
        return self.stopped(point.axes["arm"]) is not None

    def stopped(self, arm: Arm) -> StoppedArm | None:
        """Return why an arm has no more rounds: its training diverged, or its validation metric collapsed."""
        name, maximize = self.metric[0], self.metric[1] == "max"
        start = self._validation(arm.ticket.point(0), name)
        collapse = self.options.collapse or (0.5 if maximize else 1.0)
        limit = None
        if start is not None and start > 0 and collapse < 1:
            limit = start * (1 - collapse) if maximize else start / (1 - collapse)
        rounds = self.options.rounds or 0
        for number in range(rounds + 1):
            failure = self.failed.get(arm.point(number), "")
            if failure.startswith(DIVERGED):
                return StoppedArm(**arm.key, round=number, reason=failure.partition(" (log:")[0])
            value = self._validation(arm.point(number), name)
            if limit is None or value is None or number == rounds:
                continue
            if value < limit if maximize else value > limit:
                text = f"{name} {value:.4g} in validation is {'below' if maximize else 'above'} {limit:.4g}"
                return StoppedArm(**arm.key, round=number, reason=f"{text} (--collapse {collapse:g})")
        return None

    def _validation(self, point: str, metric: str) -> float | None:
        row = self.rows.get(point)
        return None if row is None else row.val.get(metric)

    def results(self) -> LotteryResults:
        """Return the results of the finished rounds."""
        options, (metric, mode) = self.options, self.metric
        return LotteryResults(
            backbone=options.backbone,
            data=options.data,
            task=self.task,
            metric=metric,
            mode=mode,
            rate=options.rate,
            rounds=options.rounds,
            pruning=config_values(options)["pruning"],
            rows=self.sorted_rows(),
            stopped=[note for arm in arms_of(options) if (note := self.stopped(arm))],
            left=len(self.remaining(retried=True)),
        )

    def write(self) -> None:
        """Write lottery.json."""
        write_json(self.folder / TICKETS, self.results().to_json())

    def say(self, text: str) -> None:
        """Print a line on rank 0."""
        if self.processes.rank == 0:
            print(text, flush=True)  # noqa: T201 (its purpose)

    def report(self, point: Point) -> None:
        """Print the result of a round, or why it failed or its arm has ended."""
        arm, number = point.axes["arm"], point.axes["round"]
        if row := self.rows.get(point.name):
            rest = f"; {left} to go" if (left := len(self.remaining())) else ""
            self.say(f"{arm.title}, round {number}/{self.options.rounds}: {_round_text(row)}{rest}")
        else:
            self.first(self.write)
        if stopped := self.stopped(arm):
            self.say(f"{arm.title}: no more rounds, {stopped.reason}")
        elif not row:
            self.say(f"{arm.title}, round {number} failed: {self.failed[point.name]}")


def lottery(options: Lottery | Mapping[str, object]) -> dict[str, Any]:
    """Train, prune and rewind in rounds, for every arm; return the content of ``lottery.json`` and ``run_dir``.

    Every round is a run of `zoo.training.fit` in its own folder with its own Trainer, in this process or with ``jobs`` or Ray
    in separate ones. The last weights of a round decide what is pruned; its model has the best weights by validation.

    Args:
        options: The options of the experiment, or a mapping by name.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
        Interrupted: At Ctrl-C or SIGTERM; the text says how to resume.
    """
    options = options if isinstance(options, Lottery) else build_options(Lottery, options)
    if options.only is not None:
        return _train_one(options)
    options, planned = check_lottery(options)
    config = config_values(options)
    with (
        start_session(planned) as session,
        claim_on_rank_0(config, options.run_dir, options.resume, session.processes, _experiment_name(options)) as folder,
        with_resume_hint(lambda: resume_text(folder.path) or NOTHING_SAVED),
    ):
        try:
            grid = Tickets(folder.path, options, str(planned.options.task or planned.data.task), session.processes)
            if folder.resumed:
                grid.rows = grid.first(grid.finished_rows)
            grid.first(lambda: write_config(folder.path, config))
            _train_all(grid, session)
        except BaseException:
            if resume_text(folder.path) is None:
                folder.discard()
            raise
    return grid.results().to_json() | {"run_dir": str(folder.path)}


def _train_one(options: Lottery) -> dict[str, Any]:
    """Train one round of an experiment whose results another process writes."""
    name, folder = options.only, Path(options.resume or "").expanduser()
    options, planned = check_lottery(replace(options, only=None))
    points = [point for point in lottery_points(options) if point.name == name]
    if not points:
        raise InputError(f"--only {name}: use --resume EXPERIMENT and the folder of one of its rounds", code="unknown")
    with start_session(planned) as session:
        train_round(folder, options, points[0], session)
    return {}


def _train_all(grid: Tickets, session: Session) -> None:
    """Train all unfinished rounds, and print a line for each."""
    options = grid.options
    grid.first(grid.write)
    arms, left = len(arms_of(options)), len(grid.remaining())
    rounds = f"{arms} arm{'s' * (arms > 1)}, rounds 0 to {options.rounds}"
    grid.say(f"{rounds}: {left} runs to go, {len(grid.rows)} finished; results in {grid.folder}")
    if options.jobs > 1 or options.on == "ray":
        with processes(options) as executor:
            execute(grid, executor, grid.report)
    else:
        execute(grid, InProcess(lambda point: train_round(grid.folder, options, point, session)), grid.report)
    if not grid.rows:
        raise InputError("; ".join(dict.fromkeys(grid.failed.values())), code="failed")


def _round_text(row: GridRow) -> str:
    """Format the result of a round."""
    parts = [f"{row.survivors / row.weights:.1%} of {row.weights:,} weights"]
    if (value := row.val.get(row.metric)) is not None:
        parts.append(f"val {row.metric} {value:.4g} (epoch {row.epoch})")
    if (value := row.test.get(row.metric)) is not None:
        parts.append(f"test {row.metric} {value:.4g}")
    return f"{', '.join(parts)}, {row.seconds:.0f} s"
