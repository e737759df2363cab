"""Training checkpoints: go on from one, and take the weights of the best."""

import os
from pathlib import Path

import lightning.pytorch as pl
import torch

from zoo.errors import InputError


def check_resume(path: str, task: pl.LightningModule) -> None:
    """Refuse a checkpoint that cannot be read or is of another network, before a run begins.

    Raises:
        InputError: If it is missing, no checkpoint, or does not fit.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no checkpoint '{path}' to go on from")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        shapes = {name: value.shape for name, value in state.items()}
    except Exception as error:  # torch raises whatever the bytes happen to lead to
        raise InputError(f"'{path}' is no training checkpoint, such as checkpoints/last.ckpt of a run") from error
    ours = {name: value.shape for name, value in task.state_dict().items()}
    if wrong := sorted(name for name in ours.keys() | shapes.keys() if ours.get(name) != shapes.get(name)):
        raise InputError(f"the checkpoint '{path}' is of another network: {wrong[0]} differs; use the run's own config.yaml")


def load_best(trainer: pl.Trainer, task: pl.LightningModule, folder: Path) -> str | None:
    """Put the best epoch's weights back and return its checkpoint; None if none was kept."""
    path: str = getattr(trainer.checkpoint_callback, "best_model_path", "")
    if not path:
        return None
    task.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])
    return str(folder / os.path.relpath(path, folder))
