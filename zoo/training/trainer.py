"""Lightning's Trainer, set up for a run: quiet, and typed by its own signature."""

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

from zoo.errors import InputError
from zoo.training.ema import MovingAverage
from zoo.training.options import Fit, parser_message
from zoo.training.resume import BestCheckpoint, KeptCheckpoints, LastCheckpoint


class Bar(RichProgressBar):
    """Lightning's bar, counting epochs from one, without the loggers' version, which means nothing in a run folder."""

    def _get_train_description(self, current_epoch: int) -> str:
        return f"{place(self.trainer).capitalize()} "

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return what stands beside the bar."""
        return {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}


class PlainProgress(Callback):
    """One line per epoch, or per validation of a run that counts in steps, for output that is no terminal."""

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Print what the epoch brought."""
        if not in_steps(trainer):
            self._print(trainer)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Print what the steps since the last validation brought."""
        if in_steps(trainer) and trainer.state.fn == "fit":
            self._print(trainer)

    def _print(self, trainer: Trainer) -> None:
        if trainer.is_global_zero:
            numbers = sorted((name, float(value)) for name, value in trainer.callback_metrics.items())
            text = "  ".join(f"{name} {value:.4f}" for name, value in numbers)
            print(f"{place(trainer)}  {text}", flush=True)  # noqa: T201 (its purpose)


def in_steps(trainer: Trainer) -> bool:
    """Whether the length of a run was given in steps alone."""
    return trainer.max_epochs in (None, -1) and trainer.max_steps > 0


def place(trainer: Trainer) -> str:
    """Say how far a run has come: ``epoch 3/10``, or ``step 500/2000``."""
    if in_steps(trainer):
        return f"step {trainer.global_step}/{trainer.max_steps}"
    return f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"


class StopOnDivergence(Callback):
    """End a run whose loss is not finite any more: nothing would come of it."""

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Look at the epoch's mean loss."""
        loss = trainer.callback_metrics.get("train_loss")
        if loss is not None and not loss.isfinite():
            raise InputError(
                f"training diverged in {place(trainer).partition('/')[0]}: the loss is not finite; use a smaller --optimizer.lr"
            )


def quiet() -> None:
    """Keep other libraries' notes and adverts off the screen; must come after their import, which sets the level."""
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # its own loggers are made when it is first used
    for name in ("lightning.pytorch", "lightning.fabric", "huggingface_hub", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Advice about loader workers and about logging intervals, which our defaults have already weighed.
    warnings.filterwarnings("ignore", module="lightning.*")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


def make_trainer(
    settings: dict[str, Any],
    folder: Path | None = None,
    options: Fit | None = None,
    monitor: tuple[str, str] = ("val_loss", "min"),
) -> Trainer:
    """Build a Trainer from checked arguments and our defaults.

    Args:
        settings: Arguments of Lightning's Trainer from `check_trainer`.
        folder: The run's folder for logs and checkpoints; None for a Trainer that only evaluates.
        options: The run; None likewise.
        monitor: The validation value that tells which epoch was best, and whether ``min`` or ``max`` is.

    Raises:
        InputError: If Lightning refuses a combination.
    """
    terminal = sys.stdout.isatty()
    defaults: dict[str, Any] = {"enable_model_summary": False, "log_every_n_steps": 10, "enable_progress_bar": terminal}
    if isinstance(settings.get("val_check_interval"), int):
        defaults["check_val_every_n_epoch"] = None  # steps are counted through all epochs
    callbacks: list[Callback] = []
    if folder is None or options is None:
        defaults |= {"logger": False, "enable_checkpointing": False}
    else:
        tensorboard = TensorBoardLogger(folder, name="", version="tensorboard")
        defaults |= {"default_root_dir": str(folder), "num_sanity_val_steps": 0}
        defaults |= {"logger": [CSVLogger(folder, name="", version=""), tensorboard]}
        callbacks += run_callbacks(settings, folder, options, monitor)
    if settings.get("enable_progress_bar", True):
        callbacks.append(Bar(leave=False) if terminal else PlainProgress())
    arguments = defaults | {name: value for name, value in settings.items() if value is not None}
    arguments["callbacks"] = callbacks + list(settings.get("callbacks") or [])
    try:
        return Trainer(**arguments)
    except (MisconfigurationException, ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"--trainer: {str(error).strip().splitlines()[0]}") from error


def check_ranks(trainer: Trainer, net: nn.Module) -> None:
    """Refuse several processes for a network whose memory is of the batch before: they share out the rows of its batches."""
    if trainer.world_size > 1 and getattr(net, "has_memory", False):
        raise InputError("a network with a memory reads its text in order, in one process: use --trainer.devices 1")


def run_callbacks(settings: dict[str, Any], folder: Path, options: Fit, monitor: tuple[str, str]) -> list[Callback]:
    """Build what watches over a run, and what keeps its weights.

    Raises:
        InputError: If checkpoints are to be kept and not to be kept, or a number is out of range.
    """
    callbacks: list[Callback] = [StopOnDivergence()]
    if options.ema is not None:
        callbacks.append(MovingAverage(options.ema))
    keepers: list[Callback] = [BestCheckpoint(folder, options, monitor), LastCheckpoint(folder)]
    if options.keep != 1:
        keepers.append(KeptCheckpoints(folder, options))
    if settings.get("enable_checkpointing", True):
        return callbacks + keepers
    if options.keep > 1:
        raise InputError(f"--keep {options.keep} keeps checkpoints, --trainer.enable_checkpointing false none: leave one out")
    return callbacks


def check_trainer(values: dict[str, Any]) -> dict[str, Any]:
    """Check arguments against the types in the signature of Lightning's Trainer and build the objects that a file describes.

    Raises:
        InputError: If Lightning has no such argument or does not accept the value.
    """
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Trainer, "trainer", instantiate=False, fail_untyped=False)
    instantiate = getattr(parser, "instantiate", parser.instantiate_classes)  # its name since jsonargparse 4.49
    try:
        parsed = instantiate(parser.parse_object({"trainer": values}, defaults=False))
    except ArgumentError as error:
        raise InputError(f"--trainer: {parser_message(str(error))}") from error
    return dict(vars(parsed.trainer)) if values else {}
