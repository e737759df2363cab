"""Lightning's Trainer, set up for a run: its own argument types, our defaults, loggers and callbacks."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser
from lightning.pytorch import Callback, Trainer, callbacks, loggers
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from zoo.errors import InputError, check_rules, one_line, shorten
from zoo.training.callbacks import EqualBuffers, MovingAverage, ProgressBar, ProgressLines, SplitNote
from zoo.training.checkpoint_io import AtomicCheckpointIO
from zoo.training.checkpoints import Checkpoints
from zoo.training.metrics_table import MetricsTable
from zoo.training.objects import is_object
from zoo.training.options import Fit, parser_message
from zoo.training.private_names import move_wandb
from zoo.training.processes import build_trainer
from zoo.training.resume import Resumed
from zoo.training.signals import Signals


def make_trainer(
    settings: Mapping[str, Any],
    folder: Path,
    options: Fit,
    monitor: tuple[str, str] = ("val_loss", "min"),
    signals: Signals | None = None,
    resumed: Resumed | None = None,
) -> Trainer:
    """Build the Trainer of a run from checked arguments and our defaults."""
    terminal, signals = sys.stdout.isatty(), signals or Signals()
    defaults: dict[str, Any] = {"enable_model_summary": False, "log_every_n_steps": 10, "enable_progress_bar": terminal}
    defaults |= {"default_root_dir": str(folder), "num_sanity_val_steps": 0, "enable_checkpointing": True}
    given = defaults | {name: value for name, value in settings.items() if value is not None}
    if isinstance(given.get("val_check_interval"), int):
        given.setdefault("check_val_every_n_epoch", None)  # steps are counted through all epochs
    kept = given["enable_checkpointing"]
    without = "is for checkpoints, and --trainer.enable_checkpointing false keeps none: leave one out"
    check_rules(
        (kept or options.keep == 1, f"--keep {without}"),
        (kept or options.checkpoint_every in (Fit.checkpoint_every, "never"), f"--checkpoint-every {without}"),
        (settings.get("default_root_dir") is None, "--trainer.default_root_dir: a run has one folder, which --run-dir names"),
    )
    keeps = given["enable_checkpointing"] and not given.get("fast_dev_run")
    checkpoints = Checkpoints(folder, options, monitor, signals, enabled=bool(keeps))
    given["logger"] = run_loggers(given.get("logger"), folder, resumed)
    ours = [checkpoints, checkpoints.divergence, EqualBuffers()]
    if given["logger"]:
        ours.append(LearningRateMonitor(logging_interval="step"))
    if options.ema is not None:
        ours.append(MovingAverage(options.ema))
    ours.append(SplitNote(options.data or "the data"))
    if settings.get("enable_progress_bar") is not False:
        ours.append(ProgressBar(leave=False) if terminal else ProgressLines())
    given["callbacks"] = ours + as_list(given.get("callbacks"))
    # Ours is no `Checkpoint` of Lightning: that would be called after everything that logs.
    given["enable_checkpointing"] = any(isinstance(callback, Checkpoint) for callback in given["callbacks"])
    plugins = as_list(given.get("plugins"))
    if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        given["plugins"] = [*plugins, AtomicCheckpointIO()]
    trainer = build_trainer(given)
    signals.take_over(trainer)
    return trainer


@contextmanager
def lightning_errors() -> Iterator[None]:
    """Raise an `InputError` in place of Lightning's errors about arguments of the Trainer and about metrics of callbacks."""
    try:
        yield
    except MisconfigurationException as error:
        raise InputError(f"--trainer: {one_line(error)}", code="conflict") from error
    except RuntimeError as error:
        if not str(error).startswith("Early stopping conditioned on metric"):
            raise
        raise InputError(f"--trainer.callbacks: {one_line(error)}", code="unknown") from error


def run_loggers(given: Any, folder: Path, resumed: Resumed | None) -> list[Logger]:
    """Return metrics.csv, tensorboard/ and beside them the user's loggers; ``False`` turns all of them off."""
    if given is False:
        return []
    rows, steps = (0, None) if resumed is None else (resumed.state["rows"], resumed.state["logged_steps"])
    tensorboard = TensorBoardLogger(folder, name="", version="tensorboard", purge_step=steps)
    theirs = [] if given is True else as_list(given)
    for logger in theirs:
        if isinstance(logger, loggers.WandbLogger) and logger.save_dir == ".":  # its default, the working folder
            move_wandb(logger, folder)
    return [MetricsTable(folder, rows), tensorboard, *theirs]


def as_list(value: Any) -> list[Any]:
    """Return an argument that may be one object, several or none as a list."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def check_trainer(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check arguments against the types in the signature of Lightning's Trainer and build the objects that a file describes."""
    built = dict(values)
    for name, kind in (("logger", Logger), ("callbacks", Callback)):
        if isinstance(items := values.get(name), Mapping | list | str | tuple):
            made = [build_object(name, kind, item) for item in as_list(items)]
            built[name] = made if isinstance(items, list | tuple) else made[0]
    described = {name: value for name, value in built.items() if all(map(is_plain, leaves(value)))}
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Trainer, "trainer", instantiate=False, fail_untyped=False)
    instantiate = getattr(parser, "instantiate", parser.instantiate_classes)  # its name since jsonargparse 4.49
    try:
        check_classes(described)
        parsed = parser.parse_object({"trainer": built}, defaults=False)
        check_plain({name: parsed.as_dict()["trainer"][name] for name in described})
        parsed = instantiate(parsed)
    except ArgumentError as error:
        raise InputError(f"--trainer: {parser_message(str(error))}") from error
    except (ImportError, MisconfigurationException, ValueError, TypeError) as error:  # of an object that a file describes
        raise InputError(f"--trainer: {one_line(error)}") from error
    arguments: dict[str, Any] = dict(vars(parsed.trainer)) if values else {}
    # limit_val_batches=1 is one batch, and 1.0 all of them. typing has one cache for Union[int, float] and Union[float, int],
    # so that which of them the parser tries first depends on who was imported first.
    typed = {name: value for name, value in described.items() if isinstance(value, int) and arguments[name] == value}
    return arguments | typed


def build_object(name: str, kind: type, value: Any) -> Any:
    """Build a logger or callback from ``{class_path: ..., init_args: {...}}`` or a class path; return an object as it is."""
    if isinstance(value, kind):
        return value
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--object", type=kind)
    instantiate = getattr(parser, "instantiate", parser.instantiate_classes)
    path = value.get("class_path") if isinstance(value, Mapping) else value
    if isinstance(path, str) and is_object(path):
        raise InputError(f"trainer.{name}: {path}: a file cannot hold it, and only the call that gave it can go on")
    try:
        check_classes({"class_path": value} if isinstance(value, str) else value)
        parsed = parser.parse_object({"object": value})
        check_plain(parsed.as_dict())
        return instantiate(parsed).object
    except Exception as error:  # a logger may raise what it likes
        said = one_line(error)
        if requirement := re.search(r"Requirement '([^']+)' not met", said):
            said = f"it needs a package that is not installed: pip install '{requirement[1]}'"
        said = said.removeprefix('Parser key "object": ').removeprefix(f"Problem with given class_path '{path}': ")
        raise InputError(f"--trainer: trainer.{name}: {path}: {said.partition(' Subclass types expect')[0]}") from error


def check_classes(value: Any) -> None:
    """Refuse a class path, anywhere in a value, of no installed package: a stranger's file may have a module beside it.

    jsonargparse also takes a bare path, and imports its module before it knows whether a class of that name fits.

    Raises:
        InputError: If there is one; nothing was imported then.
    """
    for item in leaves(value, "class_path"):
        if "." not in str(item):
            known = {name: f"{part.__name__}.{name}" for part in (loggers, callbacks) for name in part.__all__}
            name = known.get(str(item), "lightning.pytorch.loggers.CSVLogger")
            raise InputError(f"a class is given with its module, such as {name}")
        if str(item).partition(".")[0] not in packages_distributions():
            raise InputError(f"class {shorten(str(item))} is of no installed package: install it, or give zoo.fit the object")
    for item in leaves(value):
        if isinstance(item, str) and lies_beside(item):
            raise InputError(f"{shorten(item)} names a module of no installed package: install it, or give zoo.fit the object")


def lies_beside(text: str) -> bool:
    """Return whether a text is a path into a module that is neither installed nor of Python, but could be imported."""
    name, dot, _ = text.partition(".")
    if not dot or not name.isidentifier() or name in sys.stdlib_module_names:
        return False
    return find_spec(name) is not None and name not in packages_distributions()


def check_plain(value: Any) -> None:
    """Refuse functions and classes among the arguments that were read for an object."""
    if code := [item for item in leaves(value) if not is_plain(item)]:
        raise InputError(f"{code[0]!r:.60} is code, which a configuration may not name: give zoo.fit the object")


def leaves(value: Any, only: str = "") -> Iterator[Any]:
    """Yield what lists and mappings hold, those within them too; with `only` what stands at that key."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, "" if key == only else only)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item, only)
    elif not only:
        yield value


def is_plain(value: Any) -> bool:
    """Return whether a value is data: what YAML can write, a path, a time or a member of an enumeration."""
    return value is None or isinstance(value, bool | int | float | str | Path | timedelta | Enum)
