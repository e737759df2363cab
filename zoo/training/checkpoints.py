"""Training checkpoints of a run: when they are written, their content, and which of them are kept."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, tensor

from zoo.errors import InputError, Stop
from zoo.training import state
from zoo.training.callbacks import MetricsTable, StopOnDivergence
from zoo.training.checkpoint_io import (
    MODEL,
    RUN,
    STATE,
    checkpoint_files,
    checkpoint_name,
    kept_checkpoints,
    stated_checksum,
    write_run_id,
)
from zoo.training.options import Fit, parse_interval
from zoo.training.processes import Signals


class Checkpoints(Callback):
    """Write a checkpoint after every epoch and validation, every so often in between, and when a signal ends the run.

    All of them are written between two steps, when everything about the last one is logged: at the start of the next or of an
    epoch, or at the end of training. A checkpoint is called ``epoch-0003.ckpt`` at the end of an epoch, counted from 1, and
    ``epoch-0003-step-00000250.ckpt`` within one, by the batches of the run; those that neither a validation nor a number of
    steps asked for are called ``resume-epoch-...`` and are no part of the last ones that `Fit.keep` counts.

    A new checkpoint names the best one so far by its checksum, so one file is the state of the run. The newest two stay, their
    best ones, and the last `Fit.keep`.

    Args:
        folder: The run's folder.
        fixed: The options that must not change on resume.
        monitor: The metric that decides which validation is best, and whether its ``min`` or ``max`` is.
        signals: Ctrl-C and SIGTERM.
        keep: How many checkpoints stay for `zoo average`, see `Fit.keep`.
        every: See `Fit.checkpoint_every`.

    Attributes:
        enabled: Whether anything is written; a run still stops at a signal.
        model: How to rebuild the model without the data, see `zoo.training.summary.record`.
        best: ``file``, ``sha256``, ``monitor``, ``score``, ``metrics`` (of that validation), ``epoch`` (from 1) and ``step`` of
            the best checkpoint, or None.
        newest: The file that was written last.
        finished: Whether training has come to its end.
    """

    def __init__(
        self,
        folder: Path,
        fixed: Mapping[str, Any],
        monitor: tuple[str, str],
        signals: Signals,
        keep: int = 1,
        every: str = Fit.checkpoint_every,
    ) -> None:
        self.folder, self.run_id = folder / "checkpoints", uuid4().hex
        self.fixed, self.signals, self.keep = fixed, signals, keep
        self.monitor, self.mode = monitor
        self.enabled, self.is_default = True, keep == 1 and every in (Fit.checkpoint_every, "never")
        self.divergence = StopOnDivergence()
        self.model: Mapping[str, Any] = {}
        self.best: dict[str, Any] | None = None
        self.finished, self.newest = False, ""
        self._seconds, self._steps = parse_interval(every)
        self._best_before: dict[str, Any] | None = None
        self._due = False  # whether an epoch or a validation has asked for a checkpoint
        self._better = False  # whether the next checkpoint is the best one
        self._position: dict[str, Any] | None = None  # of the checkpoint that is being written
        self._saved = 0  # batches of the run in the newest checkpoint
        self._restored: dict[str, Any] | None = None  # state of this process until the first step takes it
        self._resumed_at: list[int] | None = None  # position of the checkpoint that was read
        self._elsewhere = False  # whether another number of processes wrote it
        self._sums: dict[str, list[Any]] = {}
        self._validation_state: dict[str, Any] = {}
        self._start = self._clock = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the run has trained, in all processes that went on with it."""
        return time.monotonic() - self._start

    # --- when ---

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle signals at the next step, and warn if there will be fewer checkpoints than `Fit.keep`."""
        self.signals.graceful, self._clock = True, time.monotonic()
        if self.enabled and trainer.is_global_zero:
            self.folder.mkdir(exist_ok=True)
            write_run_id(self.folder.parent, self.run_id)
        if self._resumed_at is not None:
            state.set_loader(trainer, self._resumed_at, elsewhere=self._elsewhere)
        expected = expected_checkpoints(trainer, self._steps)
        if trainer.is_global_zero and self.enabled and self.keep > max(expected, 1):
            text = f"--keep {self.keep}: this run has {expected} validations to keep a checkpoint of"
            print(f"{text}; --checkpoint-every 500steps makes more", flush=True)  # noqa: T201 (its purpose)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the checkpoint of the previous epoch, or restore the state of an earlier process."""
        if self._restored is not None:
            self._restore(pl_module)
            state.begin_epoch(trainer)
        elif self._due:
            self._save(trainer, (trainer.current_epoch, 0), regular=True, begun=False)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Write the checkpoint of the previous step if one is due, and stop after a signal."""
        if self._restored is not None:
            self._restore(pl_module)
        loop = trainer.fit_loop.epoch_loop
        done, total = loop.batch_progress.current.completed, loop.batch_progress.total.completed
        by_steps = self._steps and not state.accumulating(trainer, done) and trainer.global_step % self._steps == 0
        asked = self._asked(trainer)
        if self._due or (total > self._saved and (by_steps or (asked and not state.accumulating(trainer, done)))):
            self._save(trainer, (trainer.current_epoch, done), regular=self._due or bool(by_steps))
        if asked > 1 and not state.accumulating(trainer, done):
            raise Stop(asked)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add the sums of an epoch that an earlier process began."""
        if self._sums:
            state.add_epoch_sums(trainer, self._sums)
            self._sums = {}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Request a checkpoint; log the restored sums if only the validation of the epoch was left."""
        self._due = True
        for name, (value, count) in self._sums.items():
            pl_module.log(name.partition(".")[2], value / count if count else value, on_epoch=True, prog_bar=True, batch_size=1)
        self._sums = {}

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the random state that validation starts with."""
        if trainer.state.fn == "fit":
            if self._restored is not None:
                self._restore(pl_module)
            self._validation_state = state.random_state(trainer.strategy.root_device)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Stop within a validation, which is repeated on resume; several processes stop after it, as after the last step."""
        can_repeat = trainer.world_size == 1 and trainer.global_step != trainer.max_steps  # Lightning would not begin again
        if trainer.state.fn == "fit" and can_repeat and self.signals.received and self.signals.graceful:
            done = trainer.fit_loop.epoch_loop.batch_progress.current.completed
            self._save(trainer, (trainer.current_epoch, done), regular=False, validate=True)
            raise Stop(self.signals.received)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare with the best validation so far and request a checkpoint."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or not self.enabled:
            return
        self._validation_state, self._due = {}, True
        if self.monitor not in trainer.callback_metrics:
            raise InputError(f"validation has logged no {self.monitor}, which tells the best epoch: log it in the task")
        score = float(trainer.callback_metrics[self.monitor])
        values = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val_")}
        before = self.best["score"] if self.best is not None else math.nan
        if math.isnan(before) or (score < before if self.mode == "min" else score > before):
            self._best_before, self._better = self.best, True
            where = {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}
            metrics = {name.removeprefix("val_"): value for name, value in values.items() if math.isfinite(value)}
            self.best = {"file": "", "sha256": None, "monitor": self.monitor, "score": score, "metrics": metrics, **where}

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the last checkpoint; a run that ends within an epoch can resume there."""
        self.finished = True
        progress = trainer.fit_loop.epoch_loop.batch_progress
        done = progress.current.completed
        if progress.is_last_batch or done >= trainer.num_training_batches:
            self._save(trainer, (trainer.current_epoch, 0), regular=True, begun=False)
        else:
            self._save(trainer, (trainer.current_epoch - 1, done), regular=True)
        self.signals.graceful = False
        if self.signals.received:
            raise Stop(self.signals.received)

    def _asked(self, trainer: Trainer) -> int:
        """Return the signal that has come to any process, 1 if it is time for a checkpoint, or 0."""
        late = self.enabled and self._seconds is not None and time.monotonic() - self._clock >= self._seconds
        asked = self.signals.received or int(late and trainer.is_global_zero)
        if trainer.world_size == 1:
            return asked
        everywhere: Tensor = trainer.strategy.reduce(tensor(asked, device=trainer.strategy.root_device), reduce_op="max")
        return int(everywhere)

    # --- what ---

    def _save(
        self, trainer: Trainer, position: tuple[int, int], *, regular: bool, validate: bool = False, begun: bool = True
    ) -> None:
        if not self.enabled:
            return
        self.divergence.look(trainer)
        self._saved = trainer.fit_loop.epoch_loop.batch_progress.total.completed
        name = checkpoint_name(position, self._saved, regular)
        if self.best is not None and self._better:
            self.best["file"] = name
        tables = [logger for logger in trainer.loggers if isinstance(logger, MetricsTable)]
        for logger in trainer.loggers if trainer.is_global_zero else ():
            if isinstance(logger, MetricsTable):
                logger.save()
            elif isinstance(logger, TensorBoardLogger):
                logger.experiment.flush()
        self._position = {"position": position, "validate": validate, "begun": begun}
        self._rows = tables[0].rows if tables else 0
        trainer.save_checkpoint(self.folder / name)
        before, self.newest = self.newest, name
        self._position, self._due = None, False
        self._clock = time.monotonic()
        if trainer.is_global_zero:
            if self.best is not None and self._better:
                self.best["sha256"] = stated_checksum(self.folder / name)
            self._remove_old({name, before})
        self._better = False

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the state that Lightning leaves out."""
        checkpoint[RUN], checkpoint[MODEL] = dict(self.fixed), dict(self.model)
        if self._position is None:  # somebody else's checkpoint, at whatever moment
            return
        epoch, batches = self._position["position"]
        random = self._validation_state if self._position["validate"] else state.random_state(trainer.strategy.root_device)
        mine = {"random": random, "gradients": state.gradients(trainer, pl_module, batches)}
        mine["sums"] = state.epoch_sums(trainer) if batches else {}
        checkpoint[STATE] = {
            "run_id": self.run_id,
            "ranks": state.gathered(mine, trainer),
            "best": self.best,
            "best_before": self._best_before,
            "position": [epoch, batches],
            "finished": self.finished,
            "rows": self._rows,
            "seconds": self.seconds,
            "epochs": trainer.current_epoch,
            "logged_steps": state.logged_steps(trainer) + bool(self._position["validate"]),
        }
        state.set_position(checkpoint, trainer, **self._position)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        saved = checkpoint[STATE]
        self._saved = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["completed"]
        self._start, self._resumed_at = self._start - saved["seconds"], saved["position"]
        self.run_id = saved["run_id"]
        self.best, self._best_before = saved["best"], saved["best_before"]
        if self.best is not None and self.best["sha256"] is None:
            self.best["sha256"] = stated_checksum(self.folder / self.best["file"])
        self._elsewhere = len(saved["ranks"]) != trainer.world_size
        if not self._elsewhere:
            self._restored = saved["ranks"][trainer.global_rank]
            self._sums = self._restored["sums"]

    def _restore(self, module: LightningModule) -> None:
        assert self._restored is not None
        state.restore_random_state(self._restored["random"], module.device)
        state.restore_gradients(module, self._restored["gradients"])
        self._restored = None

    def _remove_old(self, newest: set[str]) -> None:
        """Remove checkpoints that are no longer needed; later ones than the newest belong to an abandoned continuation."""
        paths = checkpoint_files(self.folder)
        last = next((number for number, path in enumerate(paths) if path.name == self.newest), len(paths) - 1)
        paths = paths[: last + 1]
        best = {part["file"] for part in (self.best, self._best_before) if part is not None}
        stay = {path.name for path in [*paths[-2:], *kept_checkpoints(paths)[-self.keep :]]} | best | newest
        for path in paths:
            if path.name not in stay:
                path.unlink(missing_ok=True)


def expected_checkpoints(trainer: Trainer, steps: int) -> int:
    """Return how many checkpoints `Fit.keep` can count in a run."""
    total, batches = trainer.estimated_stepping_batches, trainer.num_training_batches
    if math.isinf(total) or math.isinf(batches) or trainer.val_check_batch is None:
        return 2**31
    per_epoch = max(1, math.ceil(batches / trainer.accumulate_grad_batches))
    epochs = math.ceil(total / per_epoch)
    if math.isinf(trainer.val_check_batch):
        validations = epochs
    elif trainer.check_val_every_n_epoch is None:
        validations = int(total * trainer.accumulate_grad_batches // trainer.val_check_batch) + epochs
    else:
        validations = epochs * max(1, int(batches // trainer.val_check_batch))
    return validations + (int(total) // steps if steps else 0)
