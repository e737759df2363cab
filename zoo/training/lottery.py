"""Lottery tickets of several algebras, seeds and control arms in one folder: a run for every round, whatever stops it."""

from __future__ import annotations

import random
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zoo.backbones.build import real_twin
from zoo.errors import InputError
from zoo.pruning import LotteryTicket, prunable
from zoo.pruning.masks import full_masks, next_masks, random_values, remaining
from zoo.tasks.base import Task
from zoo.training.callbacks import DivergenceError, ProgressLines, SplitNote
from zoo.training.checkpoint_io import AtomicCheckpointIO, read_checkpoint
from zoo.training.checkpoints import STATE, checkpoint_files
from zoo.training.experiment import (
    Arm,
    Experiment,
    arms_of,
    begin_experiment,
    check,
    experiment_name,
    read_ticket,
    run_options,
    ticket_options,
)
from zoo.training.fit import Run, begin, claimed, interruptions, join_for, matmul_precision, measure, train
from zoo.training.folder import RunFolder
from zoo.training.network import network_options
from zoo.training.options import Lottery
from zoo.training.processes import Processes
from zoo.training.resolve import Plan, plan
from zoo.training.resume import Resumed
from zoo.training.signals import Signals
from zoo.training.trainer import as_list, check_trainer

TICKET = "ticket.ckpt"
"""In the folder of an arm: the state of its `LotteryTicket`, and for every weight the round that it is pruned from."""
NEVER = 255
"""The round that a weight is pruned from which survives."""


def lottery(options: Lottery) -> dict[str, Any]:
    """Train, prune and rewind, round after round, for every arm; return what is also written to ``lottery.json``.

    Every round is a run of `zoo.training.fit` in a folder of its own, with a Trainer of its own, all of them in the same
    processes. The weights at the end of its training decide what the next round is without; its model is that of the best
    epoch in validation, as in any run.

    Args:
        options: The experiment.

    Raises:
        InputError: If a name, an option, the data or the folder is wrong.
        Interrupted: At Ctrl-C or SIGTERM; the text says how to go on.
    """
    options, planned = check(options)
    task = str(planned.options.task or planned.data.task)
    processes = join_for(planned, check_trainer(planned.options.trainer))
    with (
        Signals() as signals,
        claimed(options, processes, experiment_name(options)) as folder,
        matmul_precision(options.matmul_precision),
        interruptions(folder, say=kept),
    ):
        try:
            found = processes.first(lambda: begin_experiment(folder, options))
            experiment = Experiment(folder.path, options, task, arms=arms_of(options), **found)
            Rounds(experiment, processes, signals).train()
        except BaseException:
            if kept(folder) is None:
                folder.discard()
            raise
    processes.end()
    return experiment.results() | {"run_dir": str(folder.path)}


def kept(folder: RunFolder, _: bool = False) -> str | None:
    """Say how to go on with an experiment; None if no round has begun to learn."""
    began = (path for path in folder.path.glob("*/seed-*/round-*") if checkpoint_files(path / "checkpoints"))
    if any(folder.path.glob("*/seed-*/round-*/summary.json")) or any(began):
        return f"what was trained is kept, go on with: zoo lottery --resume {shlex.quote(str(folder.path))}"
    return None


@dataclass
class Rounds:
    """Trains the rounds of an experiment that are not done yet.

    Attributes:
        experiment: What is to be trained, and what is done.
        processes: The processes, which all do the same; the first one writes.
        signals: Ctrl-C and SIGTERM.
    """

    experiment: Experiment
    processes: Processes
    signals: Signals
    _trained: int = 0
    _began: float = 0.0

    def train(self) -> None:
        """Train all rounds of all arms."""
        experiment = self.experiment
        self.processes.first(experiment.write)
        if not experiment.left():
            self._begin()
        for arm, number in experiment.open_rounds():
            try:
                self._round(arm, number)
            except DivergenceError as error:
                experiment.diverged.append(experiment.note(arm, number, str(error)))
            self.processes.smallest(0)  # all have read what goes now
            self.processes.first(partial(self._finish, arm, number))
            if row := experiment.row(arm, number):
                self._say(row_text(experiment, arm, row) + self._time_to_go())
            if stopped := experiment.stopped(arm):
                self._say(f"{arm.title}: no more rounds, {stopped['reason']}")
        if not experiment.rows:
            raise InputError("; ".join(dict.fromkeys(one["reason"] for one in experiment.diverged)))

    # --- one round ---

    def _round(self, arm: Arm, number: int) -> None:
        """Train a round, or go on with it, or only read what it came to; add its row."""
        folder = self.experiment.round_folder(arm, number)
        state = self.processes.first(lambda: state_of(folder))
        if state != "done":
            self._train_round(arm, number, {"resume": str(folder)} if state == "begun" else {"run_dir": str(folder)})
            self._trained += 1
        row, self.experiment.metric = self.processes.first(lambda: self.experiment.read_row(arm, number))
        self.experiment.rows.append(row)

    def _train_round(self, arm: Arm, number: int, place: Mapping[str, Any]) -> None:
        """Train a round as a run in its own folder."""
        ticket = LotteryTicket(**self._ticket_options(arm))
        planned = plan(replace(run_options(self.experiment.options), algebra=arm.algebra, seed=arm.seed, **place))
        settings = check_trainer(planned.options.trainer)
        # Not an option: config.yaml of the round is then the recipe of its network, to fine-tune it, say.
        settings["callbacks"] = [*as_list(settings.get("callbacks")), ticket]
        if settings.get("enable_progress_bar") is None and not sys.stdout.isatty():
            settings["enable_progress_bar"] = False
            settings["callbacks"].append(ProgressLines(f"{arm.title}, round {number}: ", every=60.0))
        draw = redrawn_seed(arm.seed) if arm.control == "reinit" else None
        with claimed(planned.options, self.processes) as claim:
            run, resumed = begin(planned, settings, claim, self.processes, self.signals, draw)
            run.sparse, callbacks = True, run.trainer.callbacks  # type: ignore[attr-defined]
            if self._trained:  # the sizes of the splits were said
                run.trainer.callbacks = [one for one in callbacks if not isinstance(one, SplitNote)]  # type: ignore[attr-defined]
            try:
                self._prepare(ticket, arm, number, run)
            except InputError:
                for logger in run.trainer.loggers:
                    logger.finalize("failed")
                claim.discard()
                raise
            self._begin()
            train(run, claim, resumed)
            run.summary |= self.processes.first(lambda: self._prune(ticket, arm, number, run, resumed))
            measure(run)

    def _ticket_options(self, arm: Arm) -> dict[str, Any]:
        """Return the options of a ticket; that of a control is given its masks, and never prunes."""
        found = ticket_options(self.experiment.options, arm.seed)
        return found if arm.control is None else found | {"score": "magnitude", "rewind_step": 0}

    def _prepare(self, ticket: LotteryTicket, arm: Arm, number: int, run: Run) -> None:
        """Give a ticket the masks and the rewind point of its round; those in a checkpoint come in their place."""
        found = prunable(run.task, ticket.matrices, include=ticket.include, exclude=ticket.exclude)
        if arm.control is None and number == 0:
            values = {name: one.parameter for name, one in found.items()}
            next_masks(found, values, full_masks(found), replace(ticket.pruning, score="magnitude"))  # before it has trained
            return
        state = self._read_ticket(arm)
        if arm.control is None:
            ticket.load_state_dict(state["ticket"])
            begun = bool(checkpoint_files(run.checkpoints.folder))
            if ticket.round not in ((number, number + 1) if begun else (number,)):
                raise InputError(f"'{self._ticket_file(arm)}' is that of round {ticket.round}, and round {number} is due")
            return
        ticket.round = number
        if arm.control == "reinit":
            ticket.masks = {name: since > number for name, since in state["pruned_from"].items()}
            return
        ticket.rewind_point, masks = state["ticket"]["rewind_point"], full_masks(found)
        for step in range(number + (self.experiment.options.pruning.score == "snip")):
            masks = next_masks(found, random_values(found, ticket.seed, step), masks, replace(ticket.pruning, score="random"))
        ticket.masks = {name: mask.cpu() for name, mask in masks.items()}

    def _prune(self, ticket: LotteryTicket, arm: Arm, number: int, run: Run, resumed: Resumed | None) -> dict[str, Any]:
        """End a round: make the masks of the next one from the last weights, and write them; return what its row needs.

        Everything is read from the last checkpoint, so that nothing depends on whether this process has trained the round.
        """
        name = run.checkpoints.newest or (resumed.path.name if resumed is not None else "")
        last = read_checkpoint(run.checkpoints.folder / name)
        state = last["callbacks"].get(ticket.state_key)
        if state is None or not last[STATE]["finished"]:
            raise InputError(f"'{run.checkpoints.folder / name}' is not the end of a round of lottery tickets")
        if arm.control is None:
            best = {key: value.clone() for key, value in run.task.state_dict().items()}
            run.task.load_state_dict(last["state_dict"])
            if not all(bool(parameter.isfinite().all()) for parameter in run.task.parameters()):
                raise DivergenceError("training diverged in its last step: use a smaller --optimizer.lr")
            ticket.load_state_dict(state)
            ticket.prune(run.task)
            run.task.load_state_dict(best)
            before = self._read_ticket(arm)["pruned_from"] if number else {}
            since = pruned_from(before, state["masks"], number)
            written = {"state_dict": {}, "ticket": ticket.state_dict(), "pruned_from": since}
            AtomicCheckpointIO().save_checkpoint(written, self._ticket_file(arm))
        found, (metric, mode) = run.checkpoints.best or {"metrics": {}, "epoch": None}, watched(run.task)
        weights = sum(mask.numel() for mask in state["masks"].values())
        note = {"control": arm.control, "round": number, "survivors": remaining(state["masks"]), "weights": weights}
        note |= {"real_weights": real_weights(run.plan, ticket), "metric": metric, "mode": mode}
        note |= {"val": found["metrics"], "epoch": found["epoch"]}
        return {"lottery": note, "checkpoint": None}  # checkpoints go with the round

    def _finish(self, arm: Arm, number: int) -> None:
        """Write lottery.json, and remove the training checkpoints of a round that is over."""
        self.experiment.write()
        shutil.rmtree(self.experiment.round_folder(arm, number) / "checkpoints", ignore_errors=True)

    # --- files ---

    def _ticket_file(self, arm: Arm) -> Path:
        return self.experiment.folder / arm.ticket.folder / TICKET

    def _read_ticket(self, arm: Arm) -> dict[str, Any]:
        """Read the ticket of an arm, or of the one that it is a control of."""
        return read_ticket(self._ticket_file(arm))

    # --- progress ---

    def _say(self, text: str) -> None:
        if self.processes.rank == 0:
            print(text, flush=True)  # noqa: T201 (its purpose)

    def _begin(self) -> None:
        """Say once what will be trained."""
        if not self._began:
            self._began = time.monotonic()
            self._say(plan_text(self.experiment))

    def _time_to_go(self) -> str:
        """Say how long the rest will take, if rounds go on to take as long as those of this process."""
        left = self.experiment.left()
        if not left or not self._trained:
            return ""
        seconds = (time.monotonic() - self._began) / self._trained * left
        return f"; {left} to go, about {duration(seconds)}"


def duration(seconds: float) -> str:
    """Write a time as it is said.

    >>> duration(40), duration(400), duration(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def plan_text(experiment: Experiment) -> str:
    """Say what will be trained."""
    options, left = experiment.options, experiment.left()
    count, pattern = len(experiment.arms), options.pruning.pattern
    how = (
        f"{pattern[0]} of {pattern[1]} weights stay"
        if pattern
        else f"each drops {options.rate:.0%} of the weights that are left"
    )
    rounds = f"round 0 with all weights, then {experiment.rounds}: {how}"
    done = f", {len(experiment.rows)} are done" if experiment.rows else ""
    return f"{count} arm{'s' * (count > 1)}; {rounds}; {left} trainings to go{done}; everything is in {experiment.folder}"


def row_text(experiment: Experiment, arm: Arm, row: Mapping[str, Any]) -> str:
    """Say what a round came to."""
    name = experiment.metric[0]
    value = row["val"].get(name)
    share = f"{row['survivors'] / row['weights']:.1%} of {row['weights']:,} weights"
    found = [] if value is None else [f"val {name} {value:.4g} (epoch {row['epoch']})"]
    found += [f"test {name} {row['test'][name]:.4g}"] if row["test"].get(name) is not None else []
    return f"{arm.title}, round {row['round']}/{experiment.rounds}: {', '.join([share, *found])}, {duration(row['seconds'])}"


def watched(task: Task) -> tuple[str, str]:
    """Return the figure of a task that is shown, and whether it is to be high (``max``) or low (``min``).

    It is the one that tells the best epoch; where that is the loss, the first metric of the task that is to be high, if any.
    """
    name, mode = task.monitor
    high = (name for name, metric in task.default_metrics().items() if getattr(metric, "higher_is_better", False))
    first = next(high, None) if name == "val_loss" else None
    return (name.removeprefix("val_"), mode) if first is None else (first, "max")


def state_of(folder: Path) -> str:
    """Say whether a round is ``done``, has ``begun`` to learn or is ``new``; then nothing is left of an earlier try."""
    if (folder / "summary.json").exists():
        return "done"
    if checkpoint_files(folder / "checkpoints"):
        return "begun"
    shutil.rmtree(folder, ignore_errors=True)
    return "new"


def redrawn_seed(seed: int) -> int:
    """Return the seed of the other initial weights, that of no arm."""
    return random.Random(f"reinit {seed}").randrange(2**32)


def pruned_from(before: Mapping[str, Tensor], masks: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """Return for every weight the round that it is pruned from, `NEVER` for those that survive; all masks in one."""
    since = before or {name: torch.full(mask.shape, NEVER, dtype=torch.uint8) for name, mask in masks.items()}
    return {name: since[name].masked_fill(~mask & (since[name] == NEVER), number) for name, mask in masks.items()}


def real_weights(planned: Plan, ticket: LotteryTicket) -> int:
    """Count the prunable weights of the same network over the reals."""
    twin = nn.Module()
    twin.net = real_twin(planned.options.backbone, **network_options(planned.options, planned.data.info))
    names = [name for name, _ in twin.named_parameters()]
    named = {
        part: [pattern for pattern in getattr(ticket, part) if any(fnmatchcase(name, pattern) for name in names)]
        for part in ("include", "exclude")
    }
    return sum(one.parameter.numel() for one in prunable(twin, ticket.matrices, **named).values())
