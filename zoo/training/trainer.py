"""Check the arguments of Lightning's Trainer, and build the Trainer of a run with its loggers and callbacks."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, get_type_hints

from lightning.pytorch import Callback, Trainer, loggers
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor, RichProgressBar
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins import CheckpointIO, LayerSync, Precision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from zoo.errors import InputError, one_line, shorten
from zoo.registry.resolution import mismatch
from zoo.training.callbacks import BroadcastBuffers, MetricsTable, ProgressLines, SplitNote, moving_average
from zoo.training.checkpoint_io import AtomicCheckpointIO
from zoo.training.checkpoints import Checkpoints
from zoo.training.options import is_object
from zoo.training.processes import build_trainer
from zoo.training.resume import Resumed
from zoo.training.state import move_wandb

EXTENSIONS = (Accelerator, Callback, CheckpointIO, LayerSync, Logger, Precision, Profiler, Strategy)
"""Base classes of the objects that a configuration may describe."""


def make_trainer(
    settings: Mapping[str, Any],
    folder: Path,
    checkpoints: Checkpoints,
    resumed: Resumed | None = None,
    ema: float | None = None,
    title: str = "",
) -> Trainer:
    """Build the Trainer of a run from checked arguments, with the loggers and callbacks of the zoo."""
    is_terminal = sys.stdout.isatty()
    defaults: dict[str, Any] = {"enable_model_summary": False, "log_every_n_steps": 10, "enable_progress_bar": is_terminal}
    defaults |= {"default_root_dir": str(folder), "num_sanity_val_steps": 0, "enable_checkpointing": True}
    arguments = defaults | {name: value for name, value in settings.items() if value is not None}
    if isinstance(arguments.get("val_check_interval"), int):
        arguments.setdefault("check_val_every_n_epoch", None)  # counts steps across epochs
    checkpoints.enabled = bool(arguments["enable_checkpointing"]) and not arguments.get("fast_dev_run")
    arguments["logger"] = run_loggers(arguments.get("logger"), folder, resumed)
    added = [checkpoints, checkpoints.divergence, BroadcastBuffers()]
    added += [LearningRateMonitor(logging_interval="step")] if arguments["logger"] else []
    added += [] if ema is None else [moving_average(ema)]
    added.append(SplitNote(title))
    if settings.get("enable_progress_bar") is not False:
        added.append(RichProgressBar() if is_terminal else ProgressLines())
    arguments["callbacks"] = [*added, *as_list(arguments.get("callbacks"))]
    # `Checkpoints` is not a `Checkpoint`, which Lightning would call after the callbacks that log.
    arguments["enable_checkpointing"] = any(isinstance(callback, Checkpoint) for callback in arguments["callbacks"])
    plugins = as_list(arguments.get("plugins"))
    if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        arguments["plugins"] = [*plugins, AtomicCheckpointIO()]
    return build_trainer(arguments)


@contextmanager
def lightning_errors() -> Iterator[None]:
    """Convert Lightning's errors about Trainer arguments and monitored metrics to `InputError`."""
    try:
        yield
    except MisconfigurationException as error:
        raise InputError(f"--trainer: {one_line(error)}", code="conflict") from error
    except RuntimeError as error:
        if not str(error).startswith("Early stopping conditioned on metric"):
            raise
        raise InputError(f"--trainer.callbacks: {one_line(error)}", code="unknown") from error


def run_loggers(given: Any, folder: Path, resumed: Resumed | None) -> list[Logger]:
    """Return the loggers of metrics.csv and tensorboard/ and those of the user; none if `given` is False."""
    if given is False:
        return []
    rows, steps = (0, None) if resumed is None else (resumed.state["rows"], resumed.state["logged_steps"])
    tensorboard = TensorBoardLogger(folder, name="", version="tensorboard", purge_step=steps)
    others = [] if given is True else as_list(given)
    for logger in others:
        if isinstance(logger, loggers.WandbLogger) and logger.save_dir == ".":  # its default
            move_wandb(logger, folder)
    return [MetricsTable(folder, rows), tensorboard, *others]


def as_list(value: Any) -> list[Any]:
    """Return a list of the objects of an argument: None, an object, a list or a tuple."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def check_trainer(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check arguments against the signature of Lightning's Trainer, and build the objects that they describe.

    A logger, callback, strategy, profiler or plugin is described as ``{class_path: ..., init_args: {...}}``; a logger or
    callback without arguments may be a class path.
    """
    hints, checked = get_type_hints(Trainer.__init__), dict[str, Any]()
    for name, value in values.items():
        option, kind = f"--trainer.{name}", {"logger": Logger, "callbacks": Callback}.get(name)
        if name not in hints:
            close = get_close_matches(name, hints, 1)
            hint = f": did you mean {close[0]}?" if close else ""
            raise InputError(f"--trainer: unknown argument '{name}'{hint}", code="unknown")
        if value is not None and (wanted := mismatch(hints[name], value)):
            raise InputError(f"{option}: {value!r:.60} must be {wanted}")
        items = [{"class_path": item} if kind and isinstance(item, str) else item for item in as_list(value)]
        items = [build_objects(item, option) for item in items]
        if kind and (wrong := [item for item in items if not isinstance(item, (kind, bool))]):
            raise InputError(f"{option}: {wrong[0]!r:.60} must be a {kind.__name__} or a class path")
        checked[name] = items if isinstance(value, list | tuple) else next(iter(items), None)
    return checked


def build_objects(value: Any, option: str) -> Any:
    """Build the objects that a value describes; return other values unchanged.

    The configuration may be untrusted, so only subclasses of `EXTENSIONS` in installed packages are imported.
    """
    if isinstance(value, list | tuple):
        return [build_objects(item, option) for item in value]
    if not isinstance(value, Mapping) or "class_path" not in value:
        return value
    path, arguments = str(value["class_path"]), value.get("init_args") or {}
    if is_object(path):
        raise InputError(f"{option}: {path}: a file cannot store it; pass it to zoo.fit again", code="unsupported")
    module, _, name = path.rpartition(".")
    if module.partition(".")[0] not in packages_distributions():
        text = f"use the full path of a class in an installed package, such as {loggers.CSVLogger.__module__}.CSVLogger"
        raise InputError(f"{option}: {shorten(path)}: {text}", code="untrusted")
    try:
        factory = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{option}: {path}: {one_line(error)}", code="unknown") from error
    if not (isinstance(factory, type) and issubclass(factory, EXTENSIONS)):
        raise InputError(f"{option}: {path} is not a logger, callback, strategy, profiler or plugin", code="untrusted")
    try:
        return factory(**{key: build_objects(item, option) for key, item in arguments.items()})
    except InputError:
        raise
    except Exception as error:  # a logger may raise anything
        raise InputError(f"{option}: {path}: {one_line(error)}") from error
