"""Callbacks and the metrics.csv logger of a run: progress, divergence, moving averages, buffers of several processes."""

from __future__ import annotations

import csv
import io
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from zoo.atomic import write_text
from zoo.errors import InputError
from zoo.training.state import broadcast_buffers


class ProgressLines(Callback):
    """Print `title` and metrics per epoch, or per validation if the run counts steps, at most once in `every` seconds."""

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
            metrics = {name: value for name, value in trainer.callback_metrics.items() if not name.startswith("lr-")}
            metrics.pop("train_loss_step", None)
            text = "  ".join(f"{name} {float(value):.4f}" for name, value in sorted(metrics.items()))
            print(f"{self.title}{progress(trainer)}  {text}", flush=True)  # noqa: T201 (its purpose)


class SplitNote(Callback):
    """Print the sizes and the origin of the splits when training starts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the note."""
        note = getattr(trainer.datamodule, "split_note", "")  # type: ignore[attr-defined]
        if note and trainer.is_global_zero:
            print(f"{self.name}: {note}", flush=True)  # noqa: T201 (its purpose)


def counts_steps(trainer: Trainer) -> bool:
    """Return whether the length of a run is given in steps only."""
    return trainer.max_epochs in (None, -1) and trainer.max_steps > 0


def progress(trainer: Trainer) -> str:
    """Format the progress of a run, such as ``epoch 3/10`` or ``step 500/2000``."""
    if counts_steps(trainer):
        return f"step {trainer.global_step}/{trainer.max_steps}"
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"


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
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record whether the loss of the step is finite."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if isinstance(loss, Tensor):
            diverged = ~loss.detach().isfinite().all()
            self._diverged = diverged if self._diverged is None else self._diverged | diverged
        interval = getattr(trainer, "log_every_n_steps", 0) or 50
        if (batch_idx + 1) % interval == 0:
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


def moving_average(decay: float) -> WeightAveraging:
    """Return a callback with an exponential moving average (EMA) of weights and buffers, m <- decay m + (1 - decay) w.

    Validation uses the average, and it is the ``state_dict`` of every checkpoint. Integer buffers are copied.
    """

    def average(mean: Tensor, weight: Tensor, count: Tensor) -> Tensor:
        return mean.lerp(weight, 1 - decay) if mean.is_floating_point() else weight

    return WeightAveraging(avg_fn=average)


class BroadcastBuffers(Callback):
    """Broadcast buffers from rank 0 before validation, and do not synchronize them during it.

    DistributedDataParallel synchronizes buffers (running means of batch norms) in every forward pass, which would deadlock in
    validation, where ranks have different numbers of batches.
    """

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Broadcast buffers once."""
        network = trainer.strategy.model
        if isinstance(network, DistributedDataParallel):
            if network.will_sync_module_buffers():
                with torch.no_grad():
                    broadcast_buffers(network)
            network.require_forward_param_sync = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Synchronize buffers again in training."""
        network = trainer.strategy.model
        if isinstance(network, DistributedDataParallel):
            network.require_forward_param_sync = True


class MetricsTable(Logger):
    """Collect metrics, and write them with every checkpoint to metrics.csv, in the format of Lightning's `CSVLogger`.

    Args:
        folder: The run folder.
        rows: Number of existing rows to keep; a resumed run logs the following ones again.
    """

    name = version = ""

    def __init__(self, folder: Path, rows: int = 0) -> None:
        super().__init__()
        self.path = folder / "metrics.csv"
        self.rows = read_rows(self.path, rows)

    @property
    def log_dir(self) -> str:
        """The run folder."""
        return str(self.path.parent)

    def log_hyperparams(self, params: Any = None, *args: Any, **kwargs: Any) -> None:
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


def read_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """Read the first rows of metrics.csv; a missing or damaged file has none."""
    with suppress(OSError, csv.Error), path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(islice(csv.DictReader(file), count))
        return [{str(name): value for name, value in row.items() if isinstance(value, str)} for row in rows]
    return []
