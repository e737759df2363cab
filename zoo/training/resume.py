"""Exact resume: checkpoint files, the state that Lightning does not save, and the checks of a resumed run."""

from __future__ import annotations

import hashlib
import io
import math
import os
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.io import CheckpointIO
from torch import Tensor, distributed

from zoo.atomic import new_file
from zoo.checkpoint.run_config import changed_options
from zoo.data.files import check_archive
from zoo.data.loader import ResumableLoader
from zoo.errors import InputError, one_line
from zoo.training.processes import is_first_process

RUN, MODEL, STATE = "zoo_run", "zoo_model", "zoo_state"
"""Keys of a checkpoint: the fixed options of its run, how to rebuild the model, and the state that Lightning does not save."""
_NAME = re.compile(r"(?:resume-)?epoch-(\d+)(?:-step-(\d+))?\.ckpt")
_DIGEST = 32
"""Bytes of a SHA-256."""
_ARCHIVE_END, _END_BYTES = b"PK\5\6", 18
"""The signature of the last record of a zip archive, and the bytes after it."""
_END_OPTIONS = [f"trainer.{name}" for name in ("max_epochs", "max_steps", "max_time", "min_epochs", "min_steps", "callbacks")]
_COUNTS = ("ready", "started", "processed", "completed")
"""Counters of Lightning's progress."""


# --- checkpoint files ---


class AtomicCheckpointIO(CheckpointIO):
    """Save checkpoints atomically, each followed by its SHA-256, which ``torch.load`` ignores."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: object = None) -> None:
        """Save a checkpoint."""
        path, content = Path(path), io.BytesIO()
        torch.save(checkpoint, content)
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            file.write(content.getbuffer())
            file.write(hashlib.sha256(content.getbuffer()).digest())

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: object = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint with `read_checkpoint`."""
        return read_checkpoint(path)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint."""
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Load a checkpoint to the CPU after verifying its checksum, without unpickling."""
    path, message = Path(path), f"'{path}' is damaged or not a training checkpoint of the zoo"
    try:
        if not has_archive_end(path):
            raise InputError(f"{message}: it is incomplete, or not a regular file", code="corrupt")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the checkpoint '{path}': {error.strerror}", code="failed") from error
    if hashlib.sha256(memoryview(data)[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise InputError(f"{message}: its checksum differs", code="corrupt")
    try:
        check_archive(path)
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
    except Exception as error:  # torch.load raises many types on invalid data
        raise InputError(f"'{path}' is not a training checkpoint of the zoo: {one_line(error, 80)}", code="corrupt") from error


def has_archive_end(path: Path) -> bool:
    """Return whether a path is a regular file with the end of an archive before its checksum.

    A file that has been extended, perhaps beyond the memory, is then not read.
    """
    if path.exists() and not path.is_file():
        return False
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _DIGEST - len(_ARCHIVE_END) - _END_BYTES))
        return file.read(len(_ARCHIVE_END)) == _ARCHIVE_END


def checkpoint_files(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    matches = [(match, path) for path in folder.glob("*.ckpt") if (match := _NAME.fullmatch(path.name))]
    return [path for match, path in sorted(matches, key=lambda pair: (int(pair[0][1]), float(pair[0][2] or math.inf), pair[1]))]


def kept_checkpoints(paths: Sequence[Path]) -> list[Path]:
    """Return the checkpoints that `Fit.keep` counts."""
    return [path for path in paths if not path.name.startswith("resume-")]


def position_of(path: Path) -> str:
    """Describe the position of a checkpoint, such as ``epoch 0003 step 00000250``."""
    return path.stem.removeprefix("resume-").replace("-", " ")


def network_state(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the state dict of the network in a checkpoint, without the prefix of the task."""
    state = checkpoint["state_dict"].items()
    return {name.removeprefix("net."): value for name, value in state if name.startswith("net.")}


# --- resuming ---


@dataclass(frozen=True)
class Resumed:
    """The checkpoint that a run resumes from, and whether training has already ended there."""

    path: Path
    checkpoint: dict[str, Any]
    finished: bool

    @property
    def state(self) -> dict[str, Any]:
        """The state that `zoo.training.checkpoints.Checkpoints` saves."""
        return self.checkpoint[STATE]  # type: ignore[no-any-return]


def resume(config: Mapping[str, Any], fixed: Mapping[str, object], folder: Path, processes: int = 1) -> Resumed:
    """Load the newest intact checkpoint of a run, and print its position and the options that changed."""
    changes = changed_options(folder, config, free=())
    path, checkpoint = newest(folder)
    saved, old_processes = checkpoint[RUN], len(checkpoint[STATE]["ranks"])
    for name, value in fixed.items():
        if name == "batch_size" and isinstance(value, int) and processes != old_processes:
            _check_batch_size(folder, saved[name], old_processes, value, processes)
        elif saved.get(name) != value:
            text = f"the run of '{path}' has {name}={saved.get(name)}, not {value}: start a new run to change it"
            raise InputError(text, code="mismatch")
    epochs, max_epochs = checkpoint[STATE]["epochs"], config["trainer"].get("max_epochs")
    finished = checkpoint[STATE]["finished"] and not any(name in _END_OPTIONS for name, _, _ in changes)
    is_shorter = isinstance(max_epochs, int) and 0 <= max_epochs < epochs
    is_done = finished and (folder / "summary.json").exists()
    if is_shorter:
        raise InputError(
            f"--trainer.max_epochs {max_epochs}: the run '{folder}' has already trained {epochs} epochs", code="conflict"
        )
    if is_done:
        raise InputError(
            f"the run '{folder}' is finished: raise --trainer.max_epochs or max_steps to train it further", code="conflict"
        )
    if is_first_process():
        changed = ", ".join(f"{name} {old} -> {new}" for name, old, new in changes)
        print(f"resuming {folder} after {position_of(path)}" + (f"; changed: {changed}" if changed else ""), flush=True)  # noqa: T201
        if processes != old_processes:
            text = f"{old_processes} -> {processes} processes: steps have the same rows, except for the last ones of an epoch"
            print(f"{text}; rounding and random numbers (dropout, augmentation) differ", flush=True)  # noqa: T201
    return Resumed(path, checkpoint, finished)


def _check_batch_size(folder: Path, old_size: int, old_processes: int, size: int, processes: int) -> None:
    """Check that a step of a run with another number of processes has the same number of rows."""
    rows = old_size * old_processes
    if size * processes != rows:
        advice = f"use --batch-size {rows // processes}" if rows % processes == 0 else f"use {old_processes} processes"
        sizes = f"({old_processes} x {old_size}), not {processes} x {size}"
        raise InputError(f"a step of the run '{folder}' has {rows} rows {sizes}: {advice}", code="mismatch")


def check_unchanged(folder: Path, resumed: Resumed | None, digest: str | list[str] | None) -> None:
    """Check that the data of a resumed run have not changed, which could move training rows to the test split."""
    saved = None if resumed is None else resumed.checkpoint[MODEL]["summary"].get("data_sha256")
    if saved and saved != digest:
        text = f"the data of the run '{folder}' have changed since it started: restore them, or start a new run"
        raise InputError(text, code="mismatch")


def newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Load the newest intact checkpoint of a run; return its path and content, and report damaged ones on stderr."""
    damaged: list[str] = []
    for path in reversed(checkpoint_files(folder / "checkpoints")):
        try:
            checkpoint = read_checkpoint(path)
            best = checkpoint[STATE]["best"]
            if best is not None and best["file"] != path.name:
                read_checkpoint(path.with_name(best["file"]))
        except InputError as error:
            damaged.append(str(error))
            continue
        if damaged and is_first_process():
            print(f"zoo: {damaged[0]}; using the previous checkpoint, {path.name}", file=sys.stderr)  # noqa: T201
        return path, checkpoint
    if damaged:
        raise InputError(f"{damaged[0]}; no previous checkpoint is intact", code="corrupt")
    raise InputError(f"'{folder}' has no checkpoint to resume from: start a new run", code="missing")


# --- state that Lightning does not save ---


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of the random generators of Python, NumPy, torch and the GPU of this process, if any."""
    name, keys, *rest = np.random.get_state()
    numpy = [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest]
    state = {"python": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state()}
    return state | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore the random generators."""
    name, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def gather(value: object, trainer: Trainer) -> list[Any]:
    """Gather the values of all ranks."""
    if trainer.world_size == 1:
        return [value]
    values: list[Any] = [None] * trainer.world_size
    distributed.all_gather_object(values, value)
    return values


def epoch_results(trainer: Trainer) -> Iterator[tuple[str, Any]]:
    """Yield the values that training has logged for the current epoch, with their running sums."""
    yield from trainer.fit_loop.epoch_loop._results.items()


def epoch_sums(trainer: Trainer) -> dict[str, list[Any]]:
    """Return the running sums and counts of the values that training logs per epoch."""
    results = epoch_results(trainer)
    metrics = {name: metric for name, metric in results if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset}
    return {name: [m.value.cpu(), getattr(m, "cumulated_batch_size", torch.tensor(0)).cpu()] for name, m in metrics.items()}


def add_epoch_sums(trainer: Trainer, sums: dict[str, list[Any]]) -> None:
    """Add the sums of the interrupted part of an epoch; call it after the first step, which creates the values."""
    for name, metric in epoch_results(trainer):
        if name in sums:
            value, count = (part.to(metric.value.device) for part in sums[name])
            if metric.meta.is_mean_reduction or metric.meta.is_sum_reduction:
                metric.value = metric.value + value
            else:
                metric.value = metric.meta.reduce_fx(metric.value, value)
            if metric.meta.is_mean_reduction:
                metric.cumulated_batch_size = metric.cumulated_batch_size + count


def accumulating(trainer: Trainer, batches: int) -> bool:
    """Return whether gradients are partially accumulated after this many batches of an epoch; its last batch is a step."""
    return batches % trainer.accumulate_grad_batches != 0 and batches != trainer.num_training_batches


def gradients(trainer: Trainer, module: LightningModule, batches: int) -> dict[str, Any]:
    """Return partially accumulated gradients by parameter name."""
    if not accumulating(trainer, batches):
        return {}
    return {name: weight.grad.cpu() for name, weight in module.named_parameters() if weight.grad is not None}


def restore_gradients(module: LightningModule, gradients: dict[str, Any]) -> None:
    """Restore partially accumulated gradients."""
    for name, weight in module.named_parameters():
        if name in gradients:
            weight.grad = gradients[name].to(weight)


def set_position(checkpoint: dict[str, Any], trainer: Trainer, position: tuple[int, int], *, started: bool) -> None:
    """Edit the progress in a checkpoint so that Lightning resumes between two steps, and repeats or skips nothing.

    The position is the number of completed epochs and of completed batches of the next one; `started` tells whether that epoch
    has started.
    """
    epoch, batches = position
    loops = checkpoint["loops"]["fit_loop"]
    counts = {"ready": epoch + 1, "started": epoch + started, "processed": epoch, "completed": epoch}
    loops["epoch_progress"] = {"total": dict(counts), "current": dict(counts)}
    total = trainer.fit_loop.epoch_loop.batch_progress.total.completed
    # `started` is off by one, so that Lightning detects neither the end of a batch nor of an epoch. On resume it then counts a
    # step for its loggers, except during gradient accumulation.
    loops["epoch_loop.batch_progress"] = {
        "total": dict.fromkeys(_COUNTS, total) | {"started": total - 1},
        "current": dict.fromkeys(_COUNTS, batches),
        "is_last_batch": False,
    }
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] = logged_steps(trainer) - (not accumulating(trainer, batches))
    validated = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.completed
    loops["epoch_loop.val_loop.batch_progress"] = {
        "total": dict.fromkeys(_COUNTS, validated),
        "current": dict.fromkeys(_COUNTS, 0),
        "is_last_batch": False,
    }


def set_loader(trainer: Trainer, position: Sequence[int], *, world_size_changed: bool = False) -> None:
    """Set the position of the training loader; Lightning would do so before it has loaded the checkpoint."""
    loader = trainer.train_dataloader
    if world_size_changed and position[1] and getattr(loader, "batch_size", None) is None:
        raise InputError("batches of texts of similar length depend on the number of processes: resume with the same number")
    if isinstance(loader, ResumableLoader):
        loader.load_state_dict({"epoch": position[0], "batches": position[1]})
    elif position[1] and trainer.is_global_zero:
        text = "the data module has a custom dataloader: the order of the rest of this epoch"
        print(f"{text} may differ from an uninterrupted run", flush=True)  # noqa: T201


def begin_epoch(trainer: Trainer) -> None:
    """Restart a custom dataloader, so that it draws from the restored random generators."""
    if not isinstance(trainer.train_dataloader, ResumableLoader):
        iter(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]


def logged_steps(trainer: Trainer) -> int:
    """Return the step number that loggers use next."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def set_counters(trainer: Trainer, epochs: int, steps: int) -> None:
    """Set the epoch and step that loggers use for the test of a run that an earlier process has trained."""
    trainer.fit_loop.epoch_progress.current.completed = epochs
    trainer.fit_loop.epoch_loop._batches_that_stepped = steps
