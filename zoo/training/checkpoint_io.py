"""Files of training checkpoints: names, atomic writing, checksums."""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from zoo.atomic import new_file
from zoo.errors import InputError, one_line

RUN, MODEL, STATE = "zoo_run", "zoo_model", "zoo_state"
"""Keys of a checkpoint: the fixed options of its run, how to rebuild the model, and the state that Lightning does not save."""
_NAME = re.compile(r"(?:resume-)?epoch-(\d+)(?:-step-(\d+))?\.ckpt")
_DIGEST = 32
"""Bytes of a SHA-256."""


class AtomicCheckpointIO(CheckpointIO):
    """Save checkpoints atomically, each followed by its SHA-256, which ``torch.load`` ignores."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None) -> None:
        """Save a checkpoint."""
        path, content = Path(path), io.BytesIO()
        torch.save(checkpoint, content)
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            file.write(content.getbuffer())
            file.write(hashlib.sha256(content.getbuffer()).digest())

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint with `read_checkpoint`."""
        return read_checkpoint(path)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint."""
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Load a checkpoint to the CPU after verifying its checksum, without unpickling."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the checkpoint '{path}': {error.strerror}", code="failed") from error
    if hashlib.sha256(memoryview(data)[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise InputError(f"'{path}' is damaged or not a training checkpoint of the zoo: its checksum differs", code="corrupt")
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
    except Exception as error:  # torch.load raises many types on invalid data
        raise InputError(f"'{path}' is not a training checkpoint of the zoo: {one_line(error, 80)}", code="corrupt") from error


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    return sorted((path for path in folder.glob("*.ckpt") if _NAME.fullmatch(path.name)), key=_order)


def _order(path: Path) -> tuple[float, float, str]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), float(match[2] or math.inf), path.name


def kept_checkpoints(paths: Sequence[Path]) -> list[Path]:
    """Return the checkpoints that `Fit.keep` counts."""
    return [path for path in paths if not path.name.startswith("resume-")]


def checkpoint_name(position: tuple[int, int], total: int, regular: bool) -> str:
    """Name the checkpoint after a position (completed epochs, completed batches of the next one) and `total` batches."""
    epoch, batches = position
    name = f"epoch-{epoch:04d}.ckpt" if batches == 0 else f"epoch-{epoch + 1:04d}-step-{total:08d}.ckpt"
    return name if regular else f"resume-{name}"


def position_of(path: Path) -> str:
    """Describe the position of a checkpoint, such as ``epoch 0003 step 00000250``."""
    return path.stem.removeprefix("resume-").replace("-", " ")
