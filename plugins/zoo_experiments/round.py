"""One round of a lottery ticket: a run with masks, which writes the masks of the next round."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
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
from zoo.training.fit import Extension, Run, train_run
from zoo.training.network import network_options
from zoo.training.processes import Processes
from zoo.training.resolve import Plan, plan
from zoo.training.resume import Resumed
from zoo.training.signals import Signals
from zoo.training.trainer import as_list, check_trainer
from zoo_experiments.arms import Arm, resume_text, run_options, ticket_options
from zoo_experiments.grid import Point
from zoo_experiments.options import Lottery

TICKET = "ticket.ckpt"
"""In the folder of an arm: the state of its `LotteryTicket`, and for every weight the round that it is pruned from."""
NEVER = 255
"""The round that a surviving weight is pruned from."""


def train_round(
    folder: Path, options: Lottery, point: Point, processes: Processes, signals: Signals, begin: Callable[[], bool]
) -> None:
    """Train or resume a round as a run in its own folder.

    Args:
        folder: The folder of the experiment.
        options: The experiment.
        point: The round.
        processes: The processes that train it.
        signals: Ctrl-C and SIGTERM.
        begin: Called before training begins; returns whether this is the first round of this process.
    """
    arm, number, path = point.axes["arm"], point.axes["round"], folder / point.name
    begun = processes.first(lambda: has_begun(path))
    where: dict[str, Any] = {"resume": str(path)} if begun else {"run_dir": str(path)}
    planned = plan(replace(run_options(options), algebra=arm.algebra, seed=arm.seed, **where))
    settings = check_trainer(planned.options.trainer)
    extension = Round(folder, options, arm, number, begin)
    # Not an option: config.yaml of the round is then the recipe of its network, for example to fine-tune it.
    settings["callbacks"] = [*as_list(settings.get("callbacks")), extension.ticket]
    if settings.get("enable_progress_bar") is None and not sys.stdout.isatty():
        settings["enable_progress_bar"] = False
        settings["callbacks"].append(ProgressLines(f"{arm.title}, round {number}: ", every=60.0))
    train_run(planned, settings, processes, signals, extension, say=lambda *_: resume_text(folder))


class Round(Extension):
    """What a round adds to its run: masks, rewind point and, at its end, the masks of the next round.

    Args:
        folder: The folder of the experiment.
        options: The experiment.
        arm: The arm of the round.
        number: The number of the round.
        begin: See `train_round`.
    """

    sparse = True

    def __init__(self, folder: Path, options: Lottery, arm: Arm, number: int, begin: Callable[[], bool]) -> None:
        given = ticket_options(options, arm.seed)
        if arm.control is not None:  # it is given its masks and never prunes
            given |= {"score": "magnitude", "rewind_step": 0}
        self.ticket, self.options, self.arm, self.number = LotteryTicket(**given), options, arm, number
        self.ticket_file = folder / arm.ticket.folder / TICKET
        self.draw = redrawn_seed(arm.seed) if arm.control == "reinit" else None
        self.begin = begin

    def prepare(self, run: Run) -> None:
        """Give the ticket its masks and rewind point; print the sizes of the splits before the first round alone."""
        self._load_masks(run)
        if not self.begin():
            callbacks = run.trainer.callbacks  # type: ignore[attr-defined]
            run.trainer.callbacks = [one for one in callbacks if not isinstance(one, SplitNote)]  # type: ignore[attr-defined]

    def _load_masks(self, run: Run) -> None:
        """Give the ticket the masks and the rewind point of its round; those in a checkpoint replace them."""
        ticket, number = self.ticket, self.number
        parameters = prunable(run.task, ticket.matrices, include=ticket.include, exclude=ticket.exclude)
        if self.arm.control is None and number == 0:
            values = {name: one.parameter for name, one in parameters.items()}
            next_masks(parameters, values, full_masks(parameters), replace(ticket.pruning, score="magnitude"))  # may raise
            return
        state = read_ticket(self.ticket_file)
        if self.arm.control is None:
            ticket.load_state_dict(state["ticket"])
            begun = bool(checkpoint_files(run.checkpoints.folder))
            if ticket.round not in ((number, number + 1) if begun else (number,)):
                text = f"'{self.ticket_file}' belongs to round {ticket.round}, but round {number} is next"
                raise InputError(text, code="mismatch")
            return
        ticket.round = number
        if self.arm.control == "reinit":
            ticket.masks = {name: since > number for name, since in state["pruned_from"].items()}
            return
        ticket.rewind_point, masks = state["ticket"]["rewind_point"], full_masks(parameters)
        for step in range(number + (self.options.pruning.score == "snip")):
            drawn = random_values(parameters, ticket.seed, step)
            masks = next_masks(parameters, drawn, masks, replace(ticket.pruning_of(step), score="random"))
        ticket.masks = {name: mask.cpu() for name, mask in masks.items()}

    def finish(self, run: Run, resumed: Resumed | None) -> dict[str, Any]:
        """Make the masks of the next round from the last weights and write them; return what the row of the round needs.

        Everything is read from the last checkpoint, so that it does not matter which process has trained the round.
        """
        name = run.checkpoints.newest or (resumed.path.name if resumed is not None else "")
        last = read_checkpoint(run.checkpoints.folder / name)
        state = last["callbacks"].get(self.ticket.state_key)
        if state is None or not last[STATE]["finished"]:
            text = f"'{run.checkpoints.folder / name}' is not the end of a round of lottery tickets"
            raise InputError(text, code="mismatch")
        if self.arm.control is None:
            self._prune(run, last, state)
        best = run.checkpoints.best or {"metrics": {}, "epoch": None}
        metric, mode = watched(run.task)
        weights = sum(mask.numel() for mask in state["masks"].values())
        note = {"control": self.arm.control, "round": self.number, "survivors": remaining(state["masks"]), "weights": weights}
        note |= {"real_weights": real_weights(run.plan, self.ticket), "metric": metric, "mode": mode}
        note |= {"val": best["metrics"], "epoch": best["epoch"]}
        return {"lottery": note, "checkpoint": None}  # checkpoints are removed with the round

    def _prune(self, run: Run, last: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Prune the last weights and write ticket.ckpt; the task keeps its best weights."""
        best = {key: value.clone() for key, value in run.task.state_dict().items()}
        run.task.load_state_dict(last["state_dict"])
        if not all(bool(parameter.isfinite().all()) for parameter in run.task.parameters()):
            raise DivergenceError("training diverged in its last step: use a smaller --optimizer.lr")
        self.ticket.load_state_dict(dict(state))
        self.ticket.prune(run.task)
        run.task.load_state_dict(best)
        before = read_ticket(self.ticket_file)["pruned_from"] if self.number else {}
        since = pruned_from(before, state["masks"], self.number)
        written = {"state_dict": {}, "ticket": self.ticket.state_dict(), "pruned_from": since}
        AtomicCheckpointIO().save_checkpoint(written, self.ticket_file)


def read_ticket(path: Path) -> dict[str, Any]:
    """Read ticket.ckpt; names and shapes are compared with the network when a round begins."""
    state = read_checkpoint(path)
    ticket: dict[str, Any] = state["ticket"] if isinstance(state.get("ticket"), dict) else {}
    since: Any = state.get("pruned_from")
    tables = [since, *(ticket.get(name) for name in ("masks", "rewind_point", "sums"))]
    tensors = all(isinstance(one, dict) and all(isinstance(value, Tensor) for value in one.values()) for one in tables)
    if not tensors or not isinstance(ticket.get("options"), dict) or not {"round", "is_due"} <= ticket.keys():
        raise InputError(f"'{path}' is no lottery ticket: begin a new experiment", code="corrupt")
    shapes = [{name: (value.shape, value.dtype) for name, value in one.items()} for one in (ticket["masks"], since)]
    if shapes[0] != {name: (shape, torch.bool) for name, (shape, _) in shapes[1].items()}:
        raise InputError(f"'{path}' is no lottery ticket, for its masks differ: begin a new experiment", code="corrupt")
    return state


def watched(task: Task) -> tuple[str, str]:
    """Return the metric of a task that is shown, and whether it is to be high (``max``) or low (``min``).

    It is the one that chooses the best epoch; if that is the loss, the first metric of the task that is to be high, if any.
    """
    name, mode = task.monitor
    high = (name for name, metric in task.default_metrics().items() if getattr(metric, "higher_is_better", False))
    first = next(high, None) if name == "val_loss" else None
    return (name.removeprefix("val_"), mode) if first is None else (first, "max")


def has_begun(folder: Path) -> bool:
    """Return whether a round has a checkpoint; otherwise remove the leftovers of an earlier try."""
    if checkpoint_files(folder / "checkpoints"):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def redrawn_seed(seed: int) -> int:
    """Return the seed of the other initial weights, which no arm uses."""
    return random.Random(f"reinit {seed}").randrange(2**32)


def pruned_from(before: Mapping[str, Tensor], masks: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """Return for every weight the round that it is pruned from, `NEVER` for those that survive."""
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
