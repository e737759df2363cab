"""Check the arguments of Lightning's Trainer, and build the Trainer of a run, its loggers and the callbacks without files."""

import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from traceback import walk_tb
from typing import Any, get_type_hints

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, loggers
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    Checkpoint,
    LearningRateFinder,
    LearningRateMonitor,
    RichProgressBar,
    Timer,
    WeightAveraging,
)
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins import CheckpointIO, LayerSync, Precision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from zoo.checkpoint.manifest import number
from zoo.errors import InputError, one_line, shorten
from zoo.registry.resolution import OF_VALUES, check_option
from zoo.training.checkpoints import Checkpoints, MetricsTable, counts_steps, progress
from zoo.training.options import TRAINER_INTERVALS, Fit, is_object
from zoo.training.processes import build_trainer
from zoo.training.quantization import QuantizationAware
from zoo.training.resume import AtomicCheckpointIO, Resumed

EXTENSIONS = (Accelerator, Callback, CheckpointIO, LayerSync, Logger, Precision, Profiler, Strategy)
"""Base classes of the objects that a configuration may describe."""


def make_trainer(
    settings: Mapping[str, object],
    folder: Path,
    checkpoints: Checkpoints,
    callbacks: Iterable[Callback] = (),
    resumed: Resumed | None = None,
) -> Trainer:
    """Build the Trainer of a run from checked arguments, with the loggers of the zoo, and its callbacks before the user's."""
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
    added += callbacks
    if settings.get("enable_progress_bar") is not False:
        added.append(RichProgressBar() if is_terminal else ProgressLines())
    given = as_list(arguments.get("callbacks"))
    for callback in given:
        check_unused(callback, resumed)
    arguments["callbacks"] = [*added, *searching(given, resumed)]
    # `Checkpoints` is not a `Checkpoint`, which Lightning would call after the callbacks that log.
    arguments["enable_checkpointing"] = any(isinstance(callback, Checkpoint) for callback in arguments["callbacks"])
    plugins = as_list(arguments.get("plugins"))
    if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        arguments["plugins"] = [*plugins, AtomicCheckpointIO()]
    return build_trainer(arguments)


def callbacks_of(options: Fit) -> list[Callback]:
    """Return the callbacks that options of a run ask for."""
    callbacks: list[Callback] = []
    if options.quantize_aware is not None:
        callbacks.append(QuantizationAware(options.quantize_aware))
    if options.ema is not None:
        callbacks.append(moving_average(options.ema))
    return [*callbacks, SplitNote(options.data or "the data")]


def device_name(trainer: Trainer) -> str:
    """Describe the devices of a Trainer, such as ``cpu`` or ``1 x NVIDIA H200``."""
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return device.type if trainer.world_size == 1 else f"{trainer.world_size} x {device.type}"
    return f"{trainer.world_size} x {torch.cuda.get_device_name(device)}"


def searching(callbacks: list[Callback], resumed: Resumed | None) -> list[Callback]:
    """Return the callbacks of a run; a resumed run has the results of finders, and does not search again.

    `BatchSizeFinder` sets ``batch_size`` of the data module, `LearningRateFinder` the learning rate of the task.
    """
    if resumed is not None:
        return [callback for callback in callbacks if not isinstance(callback, BatchSizeFinder | LearningRateFinder)]
    return [*callbacks, FoundRate()] if any(isinstance(item, LearningRateFinder) for item in callbacks) else callbacks


def check_unused(callback: Callback, resumed: Resumed | None) -> None:
    """Refuse a callback of Lightning that has the state of another run: `EarlyStopping` would stop by its scores.

    A resumed run loads the state of its checkpoint. Callbacks with a ``state_dict`` of their own, such as
    `zoo.pruning.LotteryTicket`, may continue from run to run.
    """
    state, is_lightnings = repr(callback.state_dict()), type(callback).state_dict.__module__.startswith("lightning.")
    first = vars(callback).setdefault("_zoo_first_state", state)
    if is_lightnings and resumed is None and state != first:
        text = f"--trainer.callbacks: {type(callback).__name__} has the state of another run: create a new one for every run"
        raise InputError(text, code="conflict")


def restore_batch_size(data: Any, settings: Mapping[str, object], resumed: Resumed | None) -> None:
    """Set the batch size of a resumed run whose `BatchSizeFinder` has found one."""
    if resumed is not None and any(isinstance(item, BatchSizeFinder) for item in as_list(settings.get("callbacks"))):
        data.batch_size = resumed.state["batch_size"]


class FoundRate(Callback):
    """Build the optimizer again after `LearningRateFinder`, whose rate the schedule would replace in the first step."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Build them with the new ``lr`` of the task."""
        trainer.strategy.setup_optimizers(trainer)


@contextmanager
def lightning_errors() -> Iterator[None]:
    """Convert errors that Lightning raises itself, which are about Trainer arguments or callbacks, to `InputError`."""
    try:
        yield
    except InputError:
        raise
    except MisconfigurationException as error:
        raise InputError(f"--trainer: {one_line(error)}", code="conflict") from error
    except OF_VALUES as error:
        frames = [(frame.f_globals.get("__name__", ""), frame) for frame, _ in walk_tb(error.__traceback__)]
        module, frame = next(pair for pair in reversed(frames) if not pair[0].startswith("torch."))
        if module.startswith("lightning.pytorch.callbacks."):
            name = type(frame.f_locals.get("self")).__name__
            raise InputError(f"--trainer.callbacks: {name}: {one_line(error)}", code="unsupported") from error
        if frames[-1][0].startswith("lightning."):
            raise InputError(f"--trainer: {one_line(error)}") from error
        raise


def run_loggers(given: object, folder: Path, resumed: Resumed | None) -> list[Logger]:
    """Return the loggers of metrics.csv and tensorboard/ and those of the user; none if `given` is False."""
    if given is False:
        return []
    rows, steps = (0, None) if resumed is None else (resumed.state["rows"], resumed.state["logged_steps"])
    tensorboard = TensorBoardLogger(folder, name="", version="tensorboard", purge_step=steps)
    others = [] if given is True else as_list(given)
    for logger in others:
        if isinstance(logger, loggers.WandbLogger) and logger.save_dir == ".":  # its default
            logger._save_dir = logger._wandb_init["dir"] = str(folder)
    return [MetricsTable(folder, rows), tensorboard, *others]


def as_list(value: object) -> list[Any]:
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
        is_count = isinstance(value, str) and re.fullmatch(r"[-+]?\d{1,20}", value)  # as in --trainer.devices "2"
        if value is not None:
            check_option(option, hints[name], int(value) if is_count else value, TRAINER_INTERVALS.get(name))
        if name == "max_time" and value is not None:
            check_duration(option, value)
        items = [{"class_path": item} if kind and isinstance(item, str) else item for item in as_list(value)]
        items = [build_objects(item, option) for item in items]
        if kind and (wrong := [item for item in items if not isinstance(item, (kind, bool))]):
            raise InputError(f"{option}: {wrong[0]!r:.60} must be a {kind.__name__} or a class path")
        checked[name] = items if isinstance(value, list | tuple) else next(iter(items), None)
    return checked


def check_duration(option: str, value: Any) -> None:
    """Raise `InputError` unless Lightning's `Timer` accepts a duration and it is positive."""
    try:
        duration = Timer(value).time_remaining()
    except (MisconfigurationException, *OF_VALUES) as error:
        advice = "use days:hours:minutes:seconds, such as 00:12:00:00"
        raise InputError(f"{option}: {value!r:.60}: {one_line(error, 100)}; {advice}") from error
    if duration is None or duration <= 0:
        raise InputError(f"{option}: {value!r:.60} must be positive")


def build_objects(value: object, option: str) -> Any:
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
            text = "  ".join(f"{name} {number(float(value))}" for name, value in sorted(metrics.items()))
            print(f"{self.title}{progress(trainer)}  {text}", flush=True)  # noqa: T201 (its purpose)


class SplitNote(Callback):
    """Print the sizes and the origin of the splits, and how the data were read, when training starts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the note."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        note, notes = getattr(data, "split_note", ""), getattr(data, "notes", ())
        for line in (*([f"{self.name}: {note}"] if note else ()), *notes) if trainer.is_global_zero else ():
            print(line, flush=True)  # noqa: T201 (its purpose)


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
                    network._sync_buffers()
            network.require_forward_param_sync = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Synchronize buffers again in training."""
        network = trainer.strategy.model
        if isinstance(network, DistributedDataParallel):
            network.require_forward_param_sync = True
