"""The callbacks of a run that write training checkpoints and metrics.csv, and stop when the loss diverges."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import Tensor, tensor

from zoo.atomic import write_text
from zoo.errors import InputError, Stop
from zoo.training.options import Fit, parse_interval
from zoo.training.processes import Signals
from zoo.training.resume import (
    MODEL,
    RUN,
    STATE,
    accumulating,
    add_epoch_sums,
    begin_epoch,
    checkpoint_files,
    epoch_sums,
    gather,
    gradients,
    kept_checkpoints,
    logged_steps,
    random_state,
    restore_gradients,
    restore_random_state,
    set_loader,
    set_position,
)

LONGEST_LINE = 2**20
"""Maximum number of characters in a line of metrics.csv."""


class Checkpoints(Callback):
    """Write a checkpoint after every epoch and validation, at regular intervals, and when a signal ends the run.

    Checkpoints are written between two steps, after everything about the last step is logged: at the start of the next step or
    epoch, or at the end of training. The checkpoint at the end of epoch 3 is ``epoch-0003.ckpt``; one within it, after 250
    batches of the run, is ``epoch-0003-step-00000250.ckpt``. Checkpoints that are written because of the time or a signal are
    ``resume-epoch-...``, and `Fit.keep` does not count them.

    The newest two checkpoints, the best one at the time of each, and the last `Fit.keep` are kept. `monitor` is the metric that
    selects the best validation, and ``min`` or ``max``.

    Attributes:
        enabled: Whether to write checkpoints; signals stop a run in any case.
        model: How to rebuild the model without the data: the values of `zoo.checkpoint.save`, and the keywords of the network.
        best: ``file``, ``monitor``, ``score``, ``metrics`` (of its validation), ``epoch`` (from 1) and ``step`` of the best
            checkpoint, or None.
        newest: File name of the newest checkpoint.
        finished: Whether training has ended.
    """

    def __init__(
        self,
        folder: Path,
        fixed: Mapping[str, object],
        monitor: tuple[str, str],
        signals: Signals,
        keep: int = 1,
        every: str = Fit.checkpoint_every,
    ) -> None:
        self.folder, self.fixed, self.signals, self.keep = folder / "checkpoints", fixed, signals, keep
        self.monitor, self.mode = monitor
        self.enabled = True
        self.divergence = StopOnDivergence()
        self.model: Mapping[str, Any] = {}
        self.best: dict[str, Any] | None = None
        self.finished, self.newest = False, ""
        self._seconds, self._steps = parse_interval(every)
        self._best_before: dict[str, Any] | None = None
        self._is_due = False  # whether an epoch or a validation has ended since the last checkpoint
        self._position: dict[str, Any] | None = None  # of the checkpoint that is being written
        self._saved_batches = 0  # completed batches of the run in the newest checkpoint
        self._rank_state: dict[str, Any] | None = None  # loaded state of this rank, until it is restored
        self._resumed_at: list[int] | None = None  # position of the loaded checkpoint
        self._world_size_changed = False
        self._sums: dict[str, list[Any]] = {}
        self._start = self._last_saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """Training time of the run, including the time before it was resumed."""
        return time.monotonic() - self._start

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Handle signals between steps."""
        self.signals.graceful, self._last_saved = True, time.monotonic()
        if self._resumed_at is not None:
            if trainer.fit_loop.epoch_loop.batch_progress.total.completed != self._saved_batches:
                text = "a callback has loaded another checkpoint at the start of the resumed run: leave it out"
                raise InputError(f"--trainer.callbacks: {text}", code="conflict")
            set_loader(trainer, self._resumed_at, world_size_changed=self._world_size_changed)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the checkpoint of the previous epoch, or restore the loaded state."""
        if self._rank_state is not None:
            self._restore(pl_module)
            begin_epoch(trainer)
        elif self._is_due:
            self._save(trainer, (trainer.current_epoch, 0), scheduled=True, started=False)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        """Write the checkpoint of the previous step if it is due, and stop after a signal."""
        self._restore(pl_module)
        loop = trainer.fit_loop.epoch_loop
        done, total = loop.batch_progress.current.completed, loop.batch_progress.total.completed
        requested = self._requested(trainer)
        is_step = not accumulating(trainer, done)
        by_steps = is_step and bool(self._steps) and trainer.global_step % self._steps == 0
        if self._is_due or (total > self._saved_batches and is_step and (by_steps or requested)):
            self._save(trainer, (trainer.current_epoch, done), scheduled=self._is_due or by_steps)
        if requested > 1 and is_step:
            raise Stop(requested)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Add the loaded sums of an epoch that was interrupted."""
        if self._sums:
            add_epoch_sums(trainer, self._sums)
            self._sums = {}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Request a checkpoint."""
        self._is_due = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Update the best validation and request a checkpoint."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or not self.enabled:
            return
        self._is_due = True
        if self.monitor not in trainer.callback_metrics:
            raise InputError(f"the task does not log '{self.monitor}' in validation, which selects the best epoch: log it")
        score = float(trainer.callback_metrics[self.monitor])
        values = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val_")}
        best = self.best["score"] if self.best is not None else math.nan
        if math.isnan(best) or (score < best if self.mode == "min" else score > best):
            self._best_before = self.best
            metrics = {name.removeprefix("val_"): value for name, value in values.items() if math.isfinite(value)}
            self.best = {"file": None, "monitor": self.monitor, "score": score, "metrics": metrics}
            self.best |= {"epoch": trainer.current_epoch + 1, "step": trainer.global_step}

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the last checkpoint, from which the run can be continued, also within an epoch."""
        self.finished = True
        progress = trainer.fit_loop.epoch_loop.batch_progress
        done = progress.current.completed
        if progress.is_last_batch or done >= trainer.num_training_batches:
            self._save(trainer, (trainer.current_epoch, 0), scheduled=True, started=False)
        else:
            self._save(trainer, (trainer.current_epoch - 1, done), scheduled=True)
        self.signals.graceful = False
        if self.signals.received:
            raise Stop(self.signals.received)

    def _requested(self, trainer: Trainer) -> int:
        """Return the signal that any rank has received, 1 if a checkpoint is due by time, or 0."""
        by_time = self.enabled and self._seconds is not None and time.monotonic() - self._last_saved >= self._seconds
        requested = self.signals.received or int(by_time and trainer.is_global_zero)
        if trainer.world_size == 1:
            return requested
        highest: Tensor = trainer.strategy.reduce(tensor(requested, device=trainer.strategy.root_device), reduce_op="max")
        return int(highest)

    def _save(self, trainer: Trainer, position: tuple[int, int], *, scheduled: bool, started: bool = True) -> None:
        if not self.enabled:
            return
        self.divergence.check(trainer)
        self._saved_batches = trainer.fit_loop.epoch_loop.batch_progress.total.completed
        epoch, batches = position
        name = f"epoch-{epoch:04d}.ckpt" if batches == 0 else f"epoch-{epoch + 1:04d}-step-{self._saved_batches:08d}.ckpt"
        name = name if scheduled else f"resume-{name}"
        if self.best is not None:
            self.best["file"] = self.best["file"] or name
        self._rows = 0
        for logger in trainer.loggers:
            if isinstance(logger, MetricsTable):
                logger.finalize()
                self._rows = len(logger.rows)
            elif isinstance(logger, TensorBoardLogger):
                logger.experiment.flush()
        self._position = {"position": position, "started": started}
        trainer.save_checkpoint(self.folder / name)
        previous, self.newest = self.newest, name
        self._position, self._is_due = None, False
        self._last_saved = time.monotonic()
        if trainer.is_global_zero:
            self._remove_old({name, previous})

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the state that Lightning does not save."""
        checkpoint[RUN], checkpoint[MODEL] = dict(self.fixed), dict(self.model)
        if self._position is None:  # a checkpoint of another callback
            return
        epoch, batches = self._position["position"]
        random = random_state(trainer.strategy.root_device)
        rank_state = {"random": random, "gradients": gradients(trainer, pl_module, batches)}
        rank_state["sums"] = epoch_sums(trainer) if batches else {}
        checkpoint[STATE] = {
            "ranks": gather(rank_state, trainer),
            "best": self.best,
            "best_before": self._best_before,
            "position": [epoch, batches],
            "finished": self.finished,
            "rows": self._rows,
            "seconds": self.seconds,
            "epochs": trainer.current_epoch,
            "logged_steps": logged_steps(trainer),
            "batch_size": getattr(trainer.datamodule, "batch_size", None),  # type: ignore[attr-defined]
        }
        set_position(checkpoint, trainer, **self._position)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Load the state of a checkpoint, unless another callback has written it."""
        if STATE not in checkpoint:
            return
        saved = checkpoint[STATE]
        self._saved_batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["completed"]
        self._start, self._resumed_at = self._start - saved["seconds"], saved["position"]
        self.best, self._best_before = saved["best"], saved["best_before"]
        self._world_size_changed = len(saved["ranks"]) != trainer.world_size
        if not self._world_size_changed:
            self._rank_state = saved["ranks"][trainer.global_rank]
            self._sums = self._rank_state["sums"]

    def _restore(self, module: LightningModule) -> None:
        if self._rank_state is not None:
            restore_random_state(self._rank_state["random"], module.device)
            restore_gradients(module, self._rank_state["gradients"])
            self._rank_state = None

    def _remove_old(self, newest: set[str]) -> None:
        """Remove checkpoints that are no longer needed; later ones than the newest are from before the run was resumed."""
        paths = checkpoint_files(self.folder)
        last = next((number for number, path in enumerate(paths) if path.name == self.newest), len(paths) - 1)
        paths = paths[: last + 1]
        needed = {best["file"] for best in (self.best, self._best_before) if best is not None} | newest
        needed |= {path.name for path in [*paths[-2:], *kept_checkpoints(paths)[-self.keep :]]}
        for path in paths:
            if path.name not in needed:
                path.unlink(missing_ok=True)


class DivergenceError(InputError):
    """Raised when the loss becomes NaN or infinite."""


class StopOnDivergence(Callback):
    """Raise `DivergenceError` on all ranks at the same step when the loss becomes NaN or infinite.

    The losses of all steps are checked together every ``log_every_n_steps`` steps and at the end of an epoch, because each
    check synchronizes with the device.
    """

    def __init__(self) -> None:
        self._diverged: Tensor | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Record whether the loss of the step is finite."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if isinstance(loss, Tensor):
            diverged = ~loss.detach().isfinite().all()
            self._diverged = diverged if self._diverged is None else self._diverged | diverged
        if (batch_idx + 1) % (getattr(trainer, "log_every_n_steps", 0) or 50) == 0:
            self.check(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the rest of the epoch."""
        self.check(trainer)

    def check(self, trainer: Trainer) -> None:
        """Raise if a loss since the last check was not finite on any rank."""
        if self._diverged is None:
            return
        diverged, self._diverged = self._diverged.float(), None
        if trainer.world_size > 1:
            diverged = trainer.strategy.reduce(diverged, reduce_op="max")
        if float(diverged):
            position = progress(trainer).partition("/")[0]
            raise DivergenceError(f"training diverged in {position}: the loss is not finite; use a smaller --optimizer.lr")


def counts_steps(trainer: Trainer) -> bool:
    """Return whether the length of a run is given in steps only."""
    return trainer.max_epochs in (None, -1) and trainer.max_steps > 0


def progress(trainer: Trainer) -> str:
    """Format the progress of a run, such as ``epoch 3/10`` or ``step 500/2000``."""
    if counts_steps(trainer):
        return f"step {trainer.global_step}/{trainer.max_steps}"
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"


class MetricsTable(Logger):
    """Collect metrics, and write them with every checkpoint to metrics.csv, in the format of Lightning's `CSVLogger`.

    A resumed run keeps the first `rows` of the file and logs the following ones again.
    """

    name = version = ""

    def __init__(self, folder: Path, rows: int = 0) -> None:
        super().__init__()
        self.path = folder / "metrics.csv"
        self.rows = _read_rows(self.path, rows)

    @property
    def log_dir(self) -> str:
        """The run folder."""
        return str(self.path.parent)

    def log_hyperparams(self, params: object = None, *args: object, **kwargs: object) -> None:
        """Do nothing: hyperparameters are in config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Add a row."""
        row = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
        self.rows.append({**row, "step": len(self.rows) if step is None else step})

    @rank_zero_only
    def finalize(self, status: str = "") -> None:
        """Write the file."""
        if self.rows:
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, sorted(set().union(*self.rows)))
            writer.writeheader()
            writer.writerows(self.rows)
            write_text(self.path, text.getvalue())


def _read_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """Read the first rows of metrics.csv; a missing or damaged file has none."""
    if not path.is_file():
        return []
    with suppress(OSError, csv.Error), path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(islice(csv.DictReader(_short_lines(file)), count))
        return [{str(name): value for name, value in row.items() if isinstance(value, str)} for row in rows]
    return []


def _short_lines(file: TextIO) -> Iterator[str]:
    """Yield lines; raise ``csv.Error`` for one above `LONGEST_LINE` characters."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise csv.Error("not a table")
        yield line
