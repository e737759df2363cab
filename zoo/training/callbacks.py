"""Callbacks and the table of metrics of a run: progress, divergence, moving averages, buffers of several processes."""

from __future__ import annotations

import csv
import io
import os
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar, WeightAveraging
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import get_ema_multi_avg_fn

from zoo.atomic import write_text
from zoo.errors import InputError
from zoo.training.state import broadcast_buffers

_WAITING = 100


class ProgressBar(RichProgressBar):
    """Lightning's bar, counting epochs from one, without the loggers' version, which means nothing in a run folder."""

    def _get_train_description(self, current_epoch: int) -> str:
        return f"{progress(self.trainer).capitalize()} "

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return the numbers to show beside the bar."""
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if is_shown(name)}


class ProgressLines(Callback):
    """Print one line per epoch, or per validation of a run that counts in steps, for output that is no terminal.

    Args:
        title: What each line begins with.
        every: Seconds between two lines at least.
    """

    def __init__(self, title: str = "", every: float = 0.0) -> None:
        self.title, self.every, self._printed = title, every, time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the metrics of the epoch."""
        if not counts_steps(trainer):
            self._print(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the metrics of the steps since the last validation."""
        if counts_steps(trainer) and trainer.state.fn == "fit":
            self._print(trainer)

    def _print(self, trainer: Trainer) -> None:
        if trainer.is_global_zero and time.monotonic() - self._printed >= self.every:
            self._printed = time.monotonic()
            shown = sorted((name, value) for name, value in trainer.callback_metrics.items() if is_shown(name))
            text = "  ".join(f"{name} {float(value):.4f}" for name, value in shown)
            print(f"{self.title}{progress(trainer)}  {text}", flush=True)  # noqa: T201 (its purpose)


def is_shown(name: str) -> bool:
    """Return whether progress shows a metric: not those of a single step, nor Lightning's version of a logger."""
    return name not in ("v_num", "train_loss_step") and not name.startswith("lr-")


class SplitNote(Callback):
    """Print the sizes of the splits when training begins, and which of them were cut from which."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the line."""
        note = getattr(trainer.datamodule, "split_note", "")  # type: ignore[attr-defined]
        if note and trainer.is_global_zero:
            print(f"{self.name}: {note}", flush=True)  # noqa: T201 (its purpose)


def counts_steps(trainer: Trainer) -> bool:
    """Return whether the length of a run was given in steps alone."""
    return trainer.max_epochs in (None, -1) and trainer.max_steps > 0


def progress(trainer: Trainer) -> str:
    """Return how far a run has come: ``epoch 3/10``, or ``step 500/2000``."""
    if counts_steps(trainer):
        return f"step {trainer.global_step}/{trainer.max_steps}"
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"


class DivergenceError(InputError):
    """The loss of a run is not finite any more."""


class StopOnDivergence(Callback):
    """End a run whose loss is not finite any more, in all processes at the same step.

    The loss of every step counts; it is looked at every ``log_every_n_steps`` steps and at the end of an epoch, because each
    look waits for the device.
    """

    def __init__(self) -> None:
        self._diverged: Tensor | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note whether the loss of the step is finite."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if isinstance(loss, Tensor):
            diverged = ~loss.detach().isfinite().all()
            self._diverged = diverged if self._diverged is None else self._diverged | diverged
        interval = getattr(trainer, "log_every_n_steps", 0) or 50
        if (batch_idx + 1) % interval == 0:
            self.look(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the end of the epoch."""
        self.look(trainer)

    def look(self, trainer: Trainer) -> None:
        """Look in all processes, at the same step."""
        if self._diverged is None:
            return
        anywhere = self._diverged.float()
        if trainer.world_size > 1:
            anywhere = trainer.strategy.reduce(anywhere, reduce_op="max")
        self._diverged = None
        if float(anywhere):
            where = progress(trainer).partition("/")[0]
            raise DivergenceError(f"training diverged in {where}: the loss is not finite; use a smaller --optimizer.lr")


class MovingAverage(WeightAveraging):
    """Keep the exponential moving average of weights and of buffers, m <- d m + (1 - d) w after each step of the optimizer.

    Validation measures it, and ``state_dict`` in every checkpoint holds it. A buffer that does not change keeps its value to
    the bit, and one of whole numbers is that of the network.

    Args:
        decay: d, above 0 and below 1.
    """

    def __init__(self, decay: float) -> None:
        if not 0 < decay < 1:
            raise InputError(f"ema={decay} is the decay of a mean: use a number between 0 and 1, such as 0.999")
        move = get_ema_multi_avg_fn(decay)

        def average(means: list[Tensor], weights: list[Tensor], count: Tensor) -> None:
            """Move the means, all of one dtype, towards the weights."""
            if means[0].is_floating_point() or means[0].is_complex():
                move(means, weights, count)
            else:
                for mean, weight in zip(means, weights, strict=True):
                    mean.copy_(weight)

        super().__init__(multi_avg_fn=average)
        self._swapped = False

    def _swap_models(self, pl_module: LightningModule) -> None:
        super()._swap_models(pl_module)
        self._swapped = not self._swapped

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the weights that the mean is of; within a validation the network holds the mean."""
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        if self._swapped:
            swapped = {"state_dict": checkpoint["current_model_state"], "current_model_state": checkpoint["state_dict"]}
            checkpoint |= swapped


class EqualBuffers(Callback):
    """Give all processes the buffers of the first when validation begins, and exchange none while it lasts.

    Torch exchanges buffers (running means of batch norms) in every forward; in validation the processes have different
    numbers of batches, and one would wait for ever.
    """

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Exchange buffers once."""
        network = trainer.strategy.model
        if isinstance(network, DistributedDataParallel):
            if network.will_sync_module_buffers():
                with torch.no_grad():
                    broadcast_buffers(network)
            network.require_forward_param_sync = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the next training step exchange them again."""
        network = trainer.strategy.model
        if isinstance(network, DistributedDataParallel):
            network.require_forward_param_sync = True


class MetricsTable(Logger):
    """Write metrics.csv into the run's folder, in the columns of Lightning's `CSVLogger`; hyperparameters are in config.yaml.

    Args:
        folder: The run's folder.
        rows: The first so many rows of the file stay; those after them are logged again by the run that goes on.

    Attributes:
        rows: How many there are.
    """

    name = version = ""

    def __init__(self, folder: Path, rows: int = 0) -> None:
        super().__init__()
        self.path, self.rows = folder / "metrics.csv", rows
        self._waiting: list[dict[str, Any]] = []
        self._columns: list[str] = []
        self._fresh = True

    @property
    def log_dir(self) -> str:
        """The run's folder."""
        return str(self.path.parent)

    def log_hyperparams(self, params: Any = None, *args: Any, **kwargs: Any) -> None:
        """Write nothing."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Add a row."""
        row = {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}
        self._waiting.append({**row, "step": self.rows if step is None else step})
        self.rows += 1
        if len(self._waiting) >= _WAITING:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        """Bring the rows to the disk; the whole file is written anew if there are new columns."""
        columns = sorted(set(self._columns).union(*self._waiting))
        if self._fresh or columns != self._columns:
            old = self._read(self.rows - len(self._waiting))
            self._columns, self._fresh = sorted({*columns, *(old[0] if old else ())}), False
            if old or self._waiting:
                write_text(self.path, self._text([*old, *self._waiting], header=True))
        elif self._waiting:
            with self.path.open("a", newline="", encoding="utf-8") as file:
                file.write(self._text(self._waiting, header=False))
                file.flush()
                os.fsync(file.fileno())
        self._waiting = []

    def finalize(self, status: str) -> None:
        """Write what waits."""
        self.save()

    def _read(self, count: int) -> list[dict[str, Any]]:
        if not count or not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")  # a damaged table must not end the run
        try:
            rows = list(csv.DictReader(io.StringIO(text, newline="")))[:count]
        except csv.Error:
            return []
        return [{str(name): value for name, value in row.items() if isinstance(value, str)} for row in rows]

    def _text(self, rows: list[dict[str, Any]], header: bool) -> str:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
