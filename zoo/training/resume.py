"""Resume a run, recover its model, and verify its files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from zoo import checkpoint as models
from zoo.atomic import write_json
from zoo.backbones.build import backbone, untrained
from zoo.checkpoint.manifest import file_record, read_json
from zoo.errors import InputError
from zoo.training.checkpoint_io import MODEL, RUN, STATE, checkpoint_files, position_of, read_checkpoint
from zoo.training.folder import changed_options, lock_folder
from zoo.training.processes import is_first_process

CHECKSUMS = "checksums.json"
_CHECKED = ("config.yaml", "metrics.csv", "summary.json", "tensorboard/*")

_END_OPTIONS = [f"trainer.{name}" for name in ("max_epochs", "max_steps", "max_time", "min_epochs", "min_steps", "callbacks")]


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


def resume(config: Mapping[str, Any], fixed: Mapping[str, Any], folder: Path, processes: int = 1) -> Resumed:
    """Load the newest intact checkpoint of a run, and print its position and the options that changed."""
    changes = changed_options(folder, config, free=())
    path, checkpoint = newest(folder)
    saved, old_processes = checkpoint[RUN], len(checkpoint[STATE]["ranks"])
    for name, value in fixed.items():
        if name == "batch_size" and isinstance(value, int) and processes != old_processes:
            check_batch_size(folder, saved[name], old_processes, value, processes)
        elif saved.get(name) != value:
            text = f"the run of '{path}' has {name}={saved.get(name)}, not {value}: start a new run to change it"
            raise InputError(text, code="mismatch")
    epochs, max_epochs = checkpoint[STATE]["epochs"], config["trainer"].get("max_epochs")
    if isinstance(max_epochs, int) and 0 <= max_epochs < epochs:
        text = f"--trainer.max_epochs {max_epochs}: the run '{folder}' has already trained {epochs} epochs"
        raise InputError(text, code="conflict")
    finished = checkpoint[STATE]["finished"] and not any(name in _END_OPTIONS for name, _, _ in changes)
    if finished and (folder / "summary.json").exists():
        text = f"the run '{folder}' is finished: raise --trainer.max_epochs or max_steps to train it further"
        raise InputError(text, code="conflict")
    if is_first_process():
        changed = ", ".join(f"{name} {old} -> {new}" for name, old, new in changes)
        print(f"resuming {folder} after {position_of(path)}" + (f"; changed: {changed}" if changed else ""), flush=True)  # noqa: T201
        if processes != old_processes:
            text = f"{old_processes} -> {processes} processes: steps have the same rows, except for the last ones of an epoch"
            print(f"{text}; rounding and random numbers (dropout, augmentation) differ", flush=True)  # noqa: T201
    return Resumed(path, checkpoint, finished)


def check_unchanged(folder: Path, resumed: Resumed | None, digest: str | None) -> None:
    """Check that the data of a resumed run have not changed, which could move training rows to the test split."""
    saved = None if resumed is None else resumed.checkpoint[MODEL]["summary"].get("data_sha256")
    if saved and saved != digest:
        text = f"the data of the run '{folder}' have changed since it started: restore them, or start a new run"
        raise InputError(text, code="mismatch")


def check_batch_size(folder: Path, old_size: int, old_processes: int, size: int, processes: int) -> None:
    """Check that a step of a run with another number of processes has the same number of rows."""
    rows = old_size * old_processes
    if size * processes != rows:
        advice = f"use --batch-size {rows // processes}" if rows % processes == 0 else f"use {old_processes} processes"
        sizes = f"({old_processes} x {old_size}), not {processes} x {size}"
        raise InputError(f"a step of the run '{folder}' has {rows} rows {sizes}: {advice}", code="mismatch")


def newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Load the newest intact checkpoint of a run; return its path and content, and report damaged ones on stderr."""
    damaged: list[str] = []
    for path in reversed(checkpoint_files(folder / "checkpoints")):
        try:
            checkpoint = read_checkpoint(path)
            best = checkpoint[STATE]["best"]
            if best is not None and best["file"] != path.name:
                read_best(folder, best)
        except InputError as error:
            damaged.append(str(error))
            continue
        if damaged and is_first_process():
            print(f"zoo: {damaged[0]}; using the previous checkpoint, {path.name}", file=sys.stderr)  # noqa: T201
        return path, checkpoint
    if damaged:
        raise InputError(f"{damaged[0]}; no previous checkpoint is intact", code="corrupt")
    raise InputError(f"'{folder}' has no checkpoint to resume from: start a new run", code="missing")


def read_best(folder: Path, best: Mapping[str, Any]) -> dict[str, Any]:
    """Load the best checkpoint of a run."""
    return read_checkpoint(folder / "checkpoints" / best["file"])


def network_state(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the state dict of the network in a checkpoint, without the prefix of the task."""
    state = checkpoint["state_dict"].items()
    return {name.removeprefix("net."): value for name, value in state if name.startswith("net.")}


def recover(run: str | Path) -> dict[str, Any]:
    """Save the model folder of a run from its best checkpoint, without loading data and without testing the model."""
    folder = Path(run).expanduser()
    if not folder.is_dir():
        raise InputError(f"the run folder '{folder}' does not exist")
    if (folder / "model").exists():
        raise InputError(f"'{folder}' already has a model folder: there is nothing to recover")
    with lock_folder(folder):
        best = newest(folder)[1][STATE]["best"]
        if best is None:
            command = f"zoo fit --resume {shlex.quote(str(folder))}"
            raise InputError(f"'{folder}' was stopped before its first validation: resume it with {command}")
        checkpoint = read_best(folder, best)
        model = checkpoint[MODEL]
        if not model or model["network"] is None:
            raise InputError(f"'{best['file']}' has objects without a spec: load its state_dict into the network in Python")
        config, summary = model["config"], model["summary"] | {"metrics": {}, "epochs": best["epoch"]}
        net = backbone(untrained(config["backbone"]), config["algebra"], **model["network"])
        net.load_state_dict(network_state(checkpoint))
        models.save(folder / "model", net, config, summary, model["files"])
    return {"folder": str(folder / "model"), "checkpoint": str(folder / "checkpoints" / best["file"]), "epoch": best["epoch"]}


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of all files of a finished run that do not contain their own checksum."""
    paths = [path for pattern in _CHECKED for path in sorted(folder.glob(pattern)) if path.is_file()]
    write_json(folder / CHECKSUMS, {path.relative_to(folder).as_posix(): file_record(path)["sha256"] for path in paths})


def verify(run: Path) -> list[dict[str, str]]:
    """Verify the files of a run folder or model folder that have a checksum, without unpickling.

    Returns:
        A row with ``file``, ``status`` (``ok`` or ``damaged``) and ``note`` for every file, and one for the model folder.
    """
    rows, checkpoints = [], checkpoint_files(run / "checkpoints")
    if not checkpoints or (run / "model").exists():
        folder = models.find(run)
        rows.append(_row(folder, lambda: "{backbone} over {algebra}".format(**models.read_config(folder))))
    rows += [_row(path, partial(_verify_checkpoint, path)) for path in checkpoints]
    if (file := run / CHECKSUMS).is_file():
        rows.append(_row(file, lambda: f"lists {len(read_json(file))} files"))
        sums = read_json(file) if rows[-1]["status"] == "ok" else {}
        rows += [_row(run / name, partial(_verify_file, run / name, digest)) for name, digest in sums.items()]
    return rows


def _row(path: Path, verify_file: Callable[[], str]) -> dict[str, str]:
    try:
        return {"file": str(path), "status": "ok", "note": verify_file()}
    except InputError as error:
        return {"file": str(path), "status": "damaged", "note": str(error)}


def _verify_checkpoint(path: Path) -> str:
    return f"after step {read_checkpoint(path)['global_step']}"


def _verify_file(path: Path, digest: str) -> str:
    if not path.is_file() or file_record(path)["sha256"] != digest:
        raise InputError("changed since the run ended" if path.exists() else "missing", code="corrupt")
    return "checksum matches"
