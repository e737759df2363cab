"""One round of an arm of lottery tickets: a run with masks that writes the masks of the next round."""

from __future__ import annotations

import random
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.backbones.build import real_twin
from zoo.errors import InputError
from zoo.pruning import LotteryTicket, prunable
from zoo.pruning.masks import full_masks, next_masks, random_values, remaining
from zoo.tasks.base import Task
from zoo.training.checkpoints import DivergenceError
from zoo.training.fit import Extension, Run, train_run
from zoo.training.folder import file_name, short_spec
from zoo.training.resolve import plan_run
from zoo.training.resume import STATE, AtomicCheckpointIO, checkpoint_files, read_checkpoint
from zoo.training.session import Session
from zoo.training.trainer import ProgressLines, SplitNote, as_list, check_trainer
from zoo_experiments.grid import Point
from zoo_experiments.options import Lottery

TICKET = "ticket.ckpt"
"""In the folder of an arm: the state of its `LotteryTicket`, and for every weight the round it is pruned from."""
NEVER = 255
"""The round that a surviving weight is pruned from."""


def folder_name(algebra: str) -> str:
    """Return the folder of an algebra."""
    return file_name(short_spec("zoo.algebras", algebra))


class Arm(NamedTuple):
    """The rounds of one algebra and seed, of the ticket (control None) or of a control."""

    algebra: str
    control: str | None
    seed: int

    @property
    def folder(self) -> str:
        """The folder of the arm in that of the experiment."""
        return f"{folder_name(self.algebra)}{f'-{self.control}' if self.control else ''}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """Display name of the arm."""
        return f"{self.algebra}{f' ({self.control})' if self.control else ''}, seed {self.seed}"

    @property
    def ticket(self) -> Arm:
        """The ticket of a control; a ticket itself."""
        return self._replace(control=None)

    @property
    def key(self) -> dict[str, Any]:
        """The keys of the arm in its rows."""
        return {"algebra": self.algebra, "control": self.control, "seed": self.seed}

    def point(self, number: int) -> str:
        """Return the name of a round, which is also its folder."""
        return f"{self.folder}/round-{number:02d}"


def ticket_options(options: Lottery, seed: int) -> dict[str, Any]:
    """Return the keywords of the `LotteryTicket` of an experiment."""
    return {"rate": options.rate, **asdict(options.pruning), "seed": seed}


def resume_text(folder: Path) -> str | None:
    """Say how to resume an experiment; None before the first checkpoint of its first round."""
    saved = any(any(folder.glob(f"*/seed-*/round-*/{name}")) for name in ("checkpoints/*.ckpt", "summary.json"))
    return f"progress is saved; resume with: zoo lottery --resume {shlex.quote(str(folder))}" if saved else None


def train_round(folder: Path, options: Lottery, point: Point, session: Session) -> None:
    """Train or resume a round as a run in its own folder."""
    arm, number, path = point.axes["arm"], point.axes["round"], folder / point.name
    has_started = session.processes.first(lambda: bool(checkpoint_files(path / "checkpoints")))
    if not has_started:
        session.processes.first(lambda: shutil.rmtree(path, ignore_errors=True))  # files of an earlier attempt
    where: dict[str, Any] = {"resume": str(path)} if has_started else {"run_dir": str(path)}
    planned = plan_run(replace(point.fit, **where))
    settings = check_trainer(planned.options.trainer)
    extension = RoundExtension(folder, options, arm, number)
    # Not an option, so that config.yaml of the round describes an ordinary run, for example to fine-tune it.
    settings["callbacks"] = [*as_list(settings.get("callbacks")), extension.ticket]
    if settings.get("enable_progress_bar") is None and not sys.stdout.isatty():
        settings["enable_progress_bar"] = False
        settings["callbacks"].append(ProgressLines(f"{arm.title}, round {number}: ", every=60.0))
    train_run(planned, session._replace(settings=settings), extension)


class RoundExtension(Extension):
    """What a round adds to its run: masks, rewind point and, at its end, the masks of the next round."""

    sparse = True

    def __init__(self, folder: Path, options: Lottery, arm: Arm, number: int) -> None:
        keywords = ticket_options(options, arm.seed)
        if arm.control is not None:  # a control gets its masks and never prunes
            keywords |= {"score": "magnitude", "rewind_step": 0}
        self.ticket, self.options, self.arm, self.number = LotteryTicket(**keywords), options, arm, number
        self.experiment, self.ticket_file = folder, folder / arm.ticket.folder / TICKET
        # A seed of the initial weights that no arm uses.
        self.weight_seed = random.Random(f"reinit {arm.seed}").randrange(2**32) if arm.control == "reinit" else None

    def resume_text(self, folder: Path, trained: bool) -> str | None:
        """Say how to resume the experiment."""
        return resume_text(self.experiment)

    def prepare(self, run: Run) -> None:
        """Set the masks and the rewind point of the round; those in a checkpoint of the round replace them."""
        ticket, number, trainer = self.ticket, self.number, run.trainer
        if number > 0:  # the sizes of the splits are printed once for each arm
            trainer.callbacks = [item for item in trainer.callbacks if not isinstance(item, SplitNote)]  # type: ignore[attr-defined]
        parameters = prunable(run.task, ticket.matrices, include=ticket.include, exclude=ticket.exclude)
        if self.arm.control is None and number == 0:
            weights = {name: matrix.parameter for name, matrix in parameters.items()}
            next_masks(parameters, weights, full_masks(parameters), replace(ticket.pruning, score="magnitude"))  # may raise
            return
        state = read_checkpoint(self.ticket_file)
        if self.arm.control is None:
            ticket.load_state_dict(state["ticket"])
            has_started = bool(checkpoint_files(run.checkpoints.folder))
            if ticket.round not in ((number, number + 1) if has_started else (number,)):
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

    def finish(self, run: Run) -> dict[str, Any]:
        """Write the masks of the next round, from the last weights; return the part of the summary that becomes a row.

        Everything is read from the last checkpoint, so it does not matter which process has trained the round.
        """
        name = run.checkpoints.newest or (run.resumed.path.name if run.resumed is not None else "")
        last = read_checkpoint(run.checkpoints.folder / name)
        state = last["callbacks"].get(self.ticket.state_key)
        if state is None or not last[STATE]["finished"]:
            raise InputError(f"'{run.checkpoints.folder / name}' is not the end of a round", code="mismatch")
        if self.arm.control is None:
            self._prune(run, last, state)
        best = run.checkpoints.best or {"metrics": {}, "epoch": None}
        metric, mode = watched(run.task)
        weights = sum(mask.numel() for mask in state["masks"].values())
        note = {"round": self.number, "survivors": remaining(state["masks"]), "weights": weights}
        note |= {"real_weights": real_weights(run, self.ticket), "metric": metric, "mode": mode}
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
        before = read_checkpoint(self.ticket_file)["pruned_from"] if self.number else {}
        since = pruned_from(before, state["masks"], self.number)
        written = {"state_dict": {}, "ticket": self.ticket.state_dict(), "pruned_from": since}
        AtomicCheckpointIO().save_checkpoint(written, self.ticket_file)


def watched(task: Task) -> tuple[str, str]:
    """Return the metric that is reported, and whether to maximize (``max``) or minimize it (``min``).

    It is the one that chooses the best epoch; if that is the loss, the first metric of the task to maximize, if any.
    """
    name, mode = task.monitor
    high = (name for name, metric in task.default_metrics().items() if getattr(metric, "higher_is_better", False))
    first = next(high, None) if name == "val_loss" else None
    return (name.removeprefix("val_"), mode) if first is None else (first, "max")


def pruned_from(before: Mapping[str, Tensor], masks: Mapping[str, Tensor], number: int) -> dict[str, Tensor]:
    """Return for every weight the round it is pruned from, `NEVER` for survivors."""
    since = before or {name: torch.full(mask.shape, NEVER, dtype=torch.uint8) for name, mask in masks.items()}
    return {name: since[name].masked_fill(~mask & (since[name] == NEVER), number) for name, mask in masks.items()}


def real_weights(run: Run, ticket: LotteryTicket) -> int:
    """Count the prunable weights of the same network over the reals."""
    twin = nn.Module()
    twin.net = real_twin(run.plan.options.backbone, **run.plan.layers, **run.data.sizes)
    names = [name for name, _ in twin.named_parameters()]
    patterns = {
        part: [pattern for pattern in getattr(ticket, part) if any(fnmatchcase(name, pattern) for name in names)]
        for part in ("include", "exclude")
    }
    return sum(matrix.parameter.numel() for matrix in prunable(twin, ticket.matrices, **patterns).values())
