"""Files of training checkpoints: names, atomic writing, checksums."""

from __future__ import annotations

import hashlib
import math
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.pytorch.plugins.io import CheckpointIO

from zoo.atomic import new_file, write_text
from zoo.errors import InputError, one_line

RUN, MODEL, STATE = "zoo_run", "zoo_model", "zoo_state"
"""Keys of a checkpoint: the fixed options of its run, how to rebuild the model, and the state that Lightning does not save."""
_NAME = re.compile(r"(?:resume-)?epoch-(\d+)(?:-step-(\d+))?\.ckpt")
RUN_ID = "checkpoints/run_id"
"""The file with the run id, which every checkpoint of the run contains."""
_MARK = b"zoo-sha256:"
_TRAILER = len(_MARK) + 64 + 1
_CHUNK = 2**20


class _HashingFile:
    """Write to a file and hash its content; keep the `OSError` that torch would replace by its own."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.sha256 = file, hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        pass


class AtomicCheckpointIO(CheckpointIO):
    """Save checkpoints atomically, with a checksum.

    The SHA-256 of a file is appended to it; ``torch.load`` ignores it.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None) -> None:
        """Save a checkpoint."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            hashed = _HashingFile(file)
            try:
                torch.save(checkpoint, hashed)  # type: ignore[arg-type]  # torch needs only `write` and `flush`
            except RuntimeError as error:
                raise hashed.error or error from None
            file.write(_MARK + hashed.sha256.hexdigest().encode() + b"\n")

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
        with Path(path).open("rb") as file:
            expected = _read_checksum(file)
            if expected is None:
                text = f"'{path}' is not a training checkpoint of the zoo or is truncated: it does not end with a checksum"
                raise InputError(text, code="corrupt")
            remaining, sha256 = file.seek(0, os.SEEK_END) - _TRAILER, hashlib.sha256()
            file.seek(0)
            while remaining and (data := file.read(min(remaining, _CHUNK))):
                sha256.update(data)
                remaining -= len(data)
            if sha256.hexdigest() != expected:
                raise InputError(f"the checkpoint '{path}' is damaged: its checksum differs", code="corrupt")
            file.seek(0)
            checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"cannot read the checkpoint '{path}': {error.strerror}", code="failed") from error
    except InputError:
        raise
    except Exception as error:  # torch.load raises many types on invalid data
        raise InputError(f"'{path}' is not a training checkpoint of the zoo: {one_line(error, 80)}", code="corrupt") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise InputError(f"'{path}' is not a training checkpoint of the zoo: it has no state_dict", code="corrupt")
    return checkpoint


def appended_checksum(path: Path) -> str | None:
    """Return the SHA-256 at the end of a checkpoint without verifying it, None if there is no checksum."""
    with path.open("rb") as file:
        return _read_checksum(file)


def _read_checksum(file: BinaryIO) -> str | None:
    if file.seek(0, os.SEEK_END) < _TRAILER:
        return None
    file.seek(-_TRAILER, os.SEEK_END)
    trailer = file.read()
    return trailer[len(_MARK) : -1].decode(errors="replace") if trailer.startswith(_MARK) and trailer.endswith(b"\n") else None


def write_run_id(folder: Path, run_id: str) -> None:
    """Write the run id and its CRC-32."""
    write_text(folder / RUN_ID, _with_checksum(run_id))


def read_run_id(folder: Path) -> str | None:
    """Read the run id of a run folder, None if its file is missing or damaged."""
    path = folder / RUN_ID
    if not path.is_file():
        return None
    content = path.read_bytes().decode(errors="replace")
    run_id = content.partition(" ")[0]
    return run_id if content == _with_checksum(run_id) else None


def _with_checksum(run_id: str) -> str:
    return f"{run_id} {zlib.crc32(run_id.encode()):08x}\n"


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
