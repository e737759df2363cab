"""Training checkpoints: which are written, what they hold, going on from one, and the model of a run that crashed."""

import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from torch import Tensor, nn

from zoo.backbones.build import backbone, untrained
from zoo.checkpoint import save
from zoo.errors import InputError
from zoo.training.folder import hold
from zoo.training.options import Fit
from zoo.training.processes import is_first_process

_RUN, _MODEL = "zoo_run", "zoo_model"
# What a checkpoint has settled: the optimizer and the schedule are restored from it, whatever the new run was told.
_NETWORK = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors")
_SETTLED = (*_NETWORK, "optimizer", "schedule", "label_smoothing", "ema", "batch_size", "seed")


class RunRecord(Callback):
    """Write into every training checkpoint which run it is of, and how to rebuild the model without the data.

    Args:
        options: The run, with everything filled in.
        model: ``config`` and ``files`` of the model folder, ``network``, the keywords that build the network (None if no spec
            names it), and ``summary``, all JSON values.
    """

    def __init__(self, options: Fit, model: Mapping[str, Any]) -> None:
        self.options, self.model = options, dict(model)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add both to a checkpoint."""
        checkpoint[_RUN], checkpoint[_MODEL] = settled(self.options), self.model


class BestCheckpoint(ModelCheckpoint):
    """Keep the epoch that validation likes best, also across a resumption into another folder.

    Args:
        folder: The run's folder.
        options: The run.
        monitor: The value that tells, and whether its ``min`` or ``max`` is best.
    """

    def __init__(self, folder: Path, options: Fit, monitor: tuple[str, str] = ("val_loss", "min")) -> None:
        name, mode = monitor
        super().__init__(folder / "checkpoints", "best", monitor=name, mode=mode, enable_version_counter=False)
        self.options = options

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Bring the best epoch so far along; Lightning forgets it when the folder is another."""
        if self.options.ckpt_path is not None and state_dict.get("best_model_path"):
            old, new = best_beside(self.options.ckpt_path), Path(str(self.dirpath)) / "best.ckpt"
            if is_first_process():
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(old, new)
            best = {"best_model_path": str(new), "kth_best_model_path": str(new), "last_model_path": ""}
            kept = {"best_k_models": {str(new): state_dict["best_model_score"]}, "dirpath": self.dirpath}
            state_dict = {**state_dict, **best, **kept}
        super().load_state_dict(state_dict)


class LastCheckpoint(ModelCheckpoint):
    """Keep the last whole epoch; some versions of Lightning have ``save_last`` wait for the next epoch that is a best one.

    Args:
        folder: The run's folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "checkpoints", "last", enable_version_counter=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Forget the run that this one goes on from: its checkpoint is not ours to replace."""


class KeptCheckpoints(Checkpoint):
    """Keep the last training checkpoints, one of every epoch and of every validation within an epoch.

    They are called ``epoch-0003.ckpt`` at the end of an epoch, counted from 1, and ``epoch-0003-step-00000250.ckpt`` within
    one. A resumption into another folder brings them along.

    Args:
        folder: The run's folder.
        options: The run.

    Raises:
        InputError: If none is to be kept.
    """

    def __init__(self, folder: Path, options: Fit) -> None:
        if options.keep < 1:
            raise InputError(f"keep={options.keep}: use a whole number from 1, the last epoch is always kept")
        self.folder, self.options = folder / "checkpoints", options

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep a checkpoint within an epoch."""
        if trainer.state.fn == "fit" and not trainer.is_last_batch and not trainer.sanity_checking:
            self._keep(trainer, f"epoch-{trainer.current_epoch + 1:04d}-step-{trainer.global_step:08d}.ckpt")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the checkpoint of an epoch."""
        self._keep(trainer, f"epoch-{trainer.current_epoch + 1:04d}.ckpt")

    def _keep(self, trainer: pl.Trainer, name: str) -> None:
        """Write a checkpoint and drop the oldest one."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        trainer.save_checkpoint(self.folder / name)
        if trainer.is_global_zero:
            for path in kept(self.folder)[: -self.options.keep]:
                path.unlink()

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Bring the checkpoints before this one along."""
        if self.options.ckpt_path is None or not trainer.is_global_zero:
            return
        found = kept(Path(self.options.ckpt_path).parent)
        before = [path for path in found if position(path) <= (checkpoint["epoch"] + 1, math.inf)]
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in before[-self.options.keep :]:
            shutil.copyfile(path, self.folder / path.name)


_KEPT = re.compile(r"epoch-(\d+)(?:-step-(\d+))?\.ckpt")


def kept(folder: Path) -> list[Path]:
    """Return the checkpoints that `KeptCheckpoints` has left in a folder, the oldest first."""
    return sorted((path for path in folder.glob("epoch-*.ckpt") if _KEPT.fullmatch(path.name)), key=position)


def position(path: Path) -> tuple[float, float]:
    """Return the epoch of a kept checkpoint, counted from 1, and its step, which is infinite at the end of an epoch."""
    match = _KEPT.fullmatch(path.name)
    assert match is not None
    return int(match[1]), float(match[2] or math.inf)


def settled(options: Fit) -> dict[str, Any]:
    """Return what of a run a checkpoint has settled, flat, by the names of the flags."""
    flat: dict[str, Any] = {}
    for name, value in asdict(options).items():
        if name in _SETTLED:
            flat |= {f"{name}.{part}": v for part, v in value.items()} if isinstance(value, Mapping) else {name: value}
    return flat


def settled_by(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a run this checkpoint has settled."""
    return dict(checkpoint[_RUN])


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a training checkpoint of ours, without unpickling objects.

    Raises:
        InputError: If it is none.
    """
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if not all(torch.is_tensor(value) for value in checkpoint["state_dict"].values()) or not settled_by(checkpoint):
            raise ValueError("not what a run writes")
    except Exception as error:  # torch raises whatever the bytes happen to lead to
        raise InputError(f"'{path}' is no training checkpoint, such as checkpoints/last.ckpt of a run") from error
    return checkpoint


def best_beside(path: str) -> Path:
    """The best checkpoint of the run that a checkpoint belongs to."""
    return Path(path).with_name("best.ckpt")


def model_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return how to rebuild the model of a checkpoint, see `RunRecord`; empty if nobody wrote that down."""
    return dict(checkpoint.get(_MODEL) or {})


def network_state(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the state of the network in a checkpoint, by the network's own names."""
    state = checkpoint["state_dict"].items()
    return {name.removeprefix("net."): value for name, value in state if name.startswith("net.")}


def check_resume(options: Fit) -> dict[str, Any] | None:
    """Read the checkpoint that a run goes on from; needs neither data nor a network. None without one.

    Raises:
        InputError: If it is missing, no checkpoint of ours or made with other settings, or its best epoch is missing.
    """
    path = options.ckpt_path
    if path is None:
        return None
    if not Path(path).is_file():
        raise InputError(f"there is no checkpoint '{path}' to go on from")
    checkpoint = read_checkpoint(path)
    check_best(path, checkpoint)
    theirs = settled(Fit("", "")) | settled_by(checkpoint)  # an option younger than the checkpoint was at its default
    for name, value in settled(options).items():
        if theirs.get(name) != value:
            raise InputError(f"the checkpoint '{path}' has {name}={theirs.get(name)}, not {value}: use its run's config.yaml")
    return checkpoint


def check_network(options: Fit, checkpoint: Mapping[str, Any] | None, task: nn.Module) -> None:
    """Compare the shapes in the checkpoint that a run goes on from with those of its task.

    Raises:
        InputError: If one differs.
    """
    if checkpoint is None:
        return
    theirs = {name: value.shape for name, value in checkpoint["state_dict"].items()}
    ours = {name: value.shape for name, value in task.state_dict().items()}
    if wrong := sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)):
        text = f"the checkpoint '{options.ckpt_path}' is of another network: {wrong[0]} differs; use its run's config.yaml"
        raise InputError(text)


def check_best(path: str, checkpoint: Mapping[str, Any]) -> None:
    """Refuse a checkpoint without the best epoch of its run beside it, or with one that it does not know of.

    Raises:
        InputError: If there is none, or a later epoch is the best one.
    """
    best = best_beside(path)
    if not best.is_file():
        raise InputError(f"the best epoch so far, {best}, is not beside the checkpoint: keep the folder together")
    if torch.load(best, map_location="cpu", weights_only=True)["epoch"] > checkpoint["epoch"]:
        raise InputError(f"the best epoch, {best}, came after the checkpoint '{path}': go on from last.ckpt")


def load_best(trainer: pl.Trainer, task: pl.LightningModule, folder: Path) -> str | None:
    """Put the best epoch's weights back and return its checkpoint; None if none was kept."""
    path: str = getattr(trainer.checkpoint_callback, "best_model_path", "")
    if not path:
        return None
    task.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])
    return str(folder / os.path.relpath(path, folder))


def recover(run: str | Path) -> dict[str, Any]:
    """Write the model folder of a run from checkpoints/best.ckpt, without its data; the model is not tested.

    Args:
        run: The folder of a run that was killed, crashed or ran out of memory or disk.

    Returns:
        ``folder`` of the model, ``checkpoint`` and ``epoch`` (from 1) that it was made of.

    Raises:
        InputError: If the run has a model or no best checkpoint, is still under way, or was made of Python objects that
            cannot be rebuilt.
    """
    folder = Path(run).expanduser()
    if not folder.is_dir():
        raise InputError(f"there is no run folder '{folder}'")
    if (folder / "model").exists():
        raise InputError(f"'{folder}' has its model: there is nothing to recover")
    best = folder / "checkpoints" / "best.ckpt"
    if not best.is_file():
        raise InputError(f"'{folder}' has no checkpoints/best.ckpt: no epoch of it was finished")
    with hold(folder):
        checkpoint = read_checkpoint(best)
        model = model_of(checkpoint)
        if not model or model["network"] is None:
            raise InputError(f"'{best}' is of Python objects that no spec names: build the network and load its state_dict")
        config, summary = model["config"], model["summary"] | {"metrics": {}, "epochs": checkpoint["epoch"] + 1}
        net = backbone(untrained(config["backbone"]), config["algebra"], **model["network"])
        net.load_state_dict(network_state(checkpoint))
        save(folder / "model", net, config, summary, model["files"])
    return {"folder": str(folder / "model"), "checkpoint": str(best), "epoch": checkpoint["epoch"] + 1}
