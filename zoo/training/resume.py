"""Read back what a run has written: resume it, recover its model, verify its files."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zoo import checkpoint as models
from zoo.atomic import write_json
from zoo.backbones.build import backbone, untrained
from zoo.checkpoint.manifest import file_record, read_json
from zoo.errors import InputError
from zoo.training.checkpoint_io import (
    MODEL,
    RUN,
    RUN_ID,
    STATE,
    checkpoint_files,
    read_checkpoint,
    read_run_id,
    stated_checksum,
)
from zoo.training.folder import hold, read_config
from zoo.training.options import flat
from zoo.training.processes import is_first_process

CHECKSUMS = "checksums.json"
_LISTED = ("config.yaml", "metrics.csv", "summary.json", "tensorboard/*")

_ENDS = ("max_epochs", "max_steps", "max_time", "min_epochs", "min_steps", "callbacks")


@dataclass(frozen=True)
class Resumed:
    """The checkpoint that a run resumes from.

    Attributes:
        path: The checkpoint.
        checkpoint: Its content.
        finished: Whether nothing is left to train.
    """

    path: Path
    checkpoint: dict[str, Any]
    finished: bool

    @property
    def state(self) -> dict[str, Any]:
        """The state that `zoo.training.checkpoints.Checkpoints` has saved."""
        state: dict[str, Any] = self.checkpoint[STATE]
        return state


def resume(config: Mapping[str, Any], fixed: Mapping[str, Any], folder: Path, processes: int = 1) -> Resumed:
    """Load the newest intact checkpoint of a run, and print its position and the options that changed."""
    old, new = flat(read_config(folder)), flat(config)
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    path, checkpoint = newest(folder)
    theirs, before = checkpoint[RUN], len(checkpoint[STATE]["ranks"])
    for name, value in fixed.items():
        if name == "batch_size" and isinstance(value, int) and processes != before:
            check_batch(folder, theirs[name], before, value, processes)
        elif theirs.get(name) != value:
            text = f"the run '{folder}' has {name}={theirs.get(name)}, not {value}: begin a new run for another one"
            raise InputError(text, code="mismatch")
    epochs, max_epochs = checkpoint[STATE]["epochs"], new.get("trainer.max_epochs")
    if isinstance(max_epochs, int) and 0 <= max_epochs < epochs:
        text = f"--trainer.max_epochs {max_epochs}: the run '{folder}' has trained {epochs} epochs already"
        raise InputError(text, code="conflict")
    finished = checkpoint[STATE]["finished"] and not any(name.removeprefix("trainer.") in _ENDS for name in names)
    if finished and (folder / "summary.json").exists():
        text = f"the run '{folder}' is finished: raise --trainer.max_epochs or max_steps to train it further"
        raise InputError(text, code="conflict")
    if is_first_process():
        changed = ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in names)
        where = path.stem.removeprefix("resume-").replace("-", " ")
        print(f"resuming {folder} after {where}" + (f"; changed: {changed}" if changed else ""), flush=True)  # noqa: T201
        if processes != before:
            text = f"{before} -> {processes} processes: the rows of every step are the same but for the last ones of an epoch"
            print(f"{text}; sums are rounded otherwise, and random numbers (dropout, augmentation) are others", flush=True)  # noqa: T201
    return Resumed(path, checkpoint, finished)


def check_unchanged(folder: Path, resumed: Resumed | None, digest: str | None) -> None:
    """Refuse changed data: rows that were trained on could end up in the test split."""
    before = None if resumed is None else resumed.checkpoint[MODEL]["summary"].get("data_sha256")
    if before and before != digest:
        text = f"the data of the run '{folder}' have changed since it began: put them back, or begin a new run"
        raise InputError(text, code="mismatch")


def check_batch(folder: Path, theirs: int, before: int, size: int, processes: int) -> None:
    """Refuse another number of processes if the rows of a step would change."""
    rows = theirs * before
    if size * processes != rows:
        advice = f"use --batch-size {rows // processes}" if rows % processes == 0 else f"use {before} processes"
        sizes = f"({before} x {theirs}), not {processes} x {size}"
        raise InputError(f"a step of the run '{folder}' has {rows} rows {sizes}: {advice}", code="mismatch")


def newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the newest intact checkpoint of a run and its content; damaged ones are named on stderr."""
    wrong: list[str] = []
    for path in reversed(checkpoint_files(folder / "checkpoints")):
        try:
            checkpoint = read_own(path, folder)
            best = checkpoint[STATE]["best"]
            if best is not None and best["file"] != path.name:
                read_best(folder, best)
        except InputError as error:
            wrong.append(str(error))
            continue
        if wrong and is_first_process():
            print(f"zoo: {wrong[0]}; the one before it, {path.name}, is whole and used", file=sys.stderr)  # noqa: T201
        return path, checkpoint
    if wrong:
        raise InputError(f"{wrong[0]}; no checkpoint before it is whole", code="corrupt")
    raise InputError(f"'{folder}' has no checkpoint: no step of it was finished", code="missing")


def read_own(path: Path, folder: Path) -> dict[str, Any]:
    """Load a checkpoint and check that it belongs to this run."""
    checkpoint = read_checkpoint(path)
    if not isinstance(checkpoint.get(STATE), dict) or not isinstance(checkpoint.get(RUN), dict):
        raise InputError(f"'{path}' is no training checkpoint of a run of the zoo")
    if checkpoint[STATE].get("run_id") != run_id_of(folder):
        raise InputError(f"the checkpoint '{path}' belongs to another run: remove it", code="mismatch")
    return checkpoint


def read_best(folder: Path, best: Mapping[str, Any]) -> dict[str, Any]:
    """Load the best checkpoint of a run and compare its checksum."""
    path = folder / "checkpoints" / best["file"]
    checkpoint = read_own(path, folder)
    if best["sha256"] is not None and stated_checksum(path) != best["sha256"]:
        raise InputError(f"the best checkpoint '{path}' is not the one that this run has written")
    return checkpoint


def run_id_of(folder: Path) -> str | None:
    """Return the id of a run; if its file is missing or damaged, the one that most of its checkpoints contain."""
    if (run_id := read_run_id(folder)) is not None:
        return run_id
    ids: Counter[str | None] = Counter()
    for path in checkpoint_files(folder / "checkpoints"):
        with suppress(InputError):
            ids[read_checkpoint(path).get(STATE, {}).get("run_id")] += 1
    return ids.most_common(1)[0][0] if ids else None


def check_network(resumed: Resumed | None, task: nn.Module) -> None:
    """Compare the shapes in a checkpoint with those of the task."""
    if resumed is None:
        return
    theirs = {name: value.shape for name, value in resumed.checkpoint["state_dict"].items()}
    ours = {name: value.shape for name, value in task.state_dict().items()}
    if wrong := sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)):
        raise InputError(f"the checkpoint '{resumed.path}' is of another network: {wrong[0]} differs")


def network_state(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the state of the network in a checkpoint, by the network's own names."""
    state = checkpoint["state_dict"].items()
    return {name.removeprefix("net."): value for name, value in state if name.startswith("net.")}


def recover(run: str | Path) -> dict[str, Any]:
    """Write the model folder of a run from its best checkpoint, without its data; the model is not tested."""
    folder = Path(run).expanduser()
    if not folder.is_dir():
        raise InputError(f"there is no run folder '{folder}'")
    if (folder / "model").exists():
        raise InputError(f"'{folder}' has its model: there is nothing to recover")
    with hold(folder):
        best = newest(folder)[1][STATE]["best"]
        if best is None:
            raise InputError(
                f"'{folder}' was stopped before its first validation: go on with zoo fit --resume {shlex.quote(str(folder))}"
            )
        checkpoint = read_best(folder, best)
        model = checkpoint[MODEL]
        if not model or model["network"] is None:
            text = f"'{best['file']}' is of Python objects that no spec names: build the network and load its state_dict"
            raise InputError(text)
        config, summary = model["config"], model["summary"] | {"metrics": {}, "epochs": best["epoch"]}
        net = backbone(untrained(config["backbone"]), config["algebra"], **model["network"])
        net.load_state_dict(network_state(checkpoint))
        models.save(folder / "model", net, config, summary, model["files"])
    recovered = {"folder": folder / "model", "checkpoint": folder / "checkpoints" / best["file"]}
    return {name: str(path) for name, path in recovered.items()} | {"epoch": best["epoch"]}


# --- verify ---


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of the files of a finished run that contain no checksum of their own."""
    paths = [path for pattern in _LISTED for path in sorted(folder.glob(pattern)) if path.is_file()]
    write_json(folder / CHECKSUMS, {path.relative_to(folder).as_posix(): file_record(path)["sha256"] for path in paths})


def verify(run: Path) -> list[dict[str, str]]:
    """Check the files of a run or of a model folder without unpickling anything.

    Returns:
        A row of ``file``, ``status`` (``ok``, ``damaged`` or ``unchecked``) and ``note`` for every file.
    """
    rows: list[dict[str, str]] = []

    def check(path: Path, describe: Callable[[], str]) -> None:
        try:
            rows.append({"file": str(path), "status": "ok", "note": describe()})
        except InputError as error:
            rows.append({"file": str(path), "status": "damaged", "note": str(error)})

    training = checkpoint_files(run / "checkpoints")
    if not training or (run / "model").exists():
        folder = models.find(run)
        check(folder, lambda: _model(folder))
        if folder == run:
            return rows
    for path in training:
        check(path, lambda path=path: f"after step {read_own(path, run)['global_step']}")  # type: ignore[misc]
    if training:
        check(run / RUN_ID, lambda: _run_id(run))
    return rows + _listed(run)


def _model(folder: Path) -> str:
    config = models.read_config(folder)
    if config["backbone"] is None or config["algebra"] is None:
        return "every file is as it was saved; its network has no spec and was not rebuilt"
    net = models.load_network(folder, config)
    return f"{config['backbone']} over {config['algebra']}, {sum(p.numel() for p in net.parameters()):,} parameters"


def _run_id(run: Path) -> str:
    if read_run_id(run) is None:
        raise InputError("its checksum differs; resuming the run writes it again", code="corrupt")
    return "same id as in every checkpoint"


def _listed(run: Path) -> list[dict[str, str]]:
    """Return a row for every other file of a run: those in checksums.json are compared, the others are named."""
    rows, sums = [], dict[str, Any]()
    if (run / CHECKSUMS).is_file():
        try:
            sums = read_json(run / CHECKSUMS)
            rows.append({"file": str(run / CHECKSUMS), "status": "ok", "note": f"lists {len(sums)} files"})
        except InputError as error:
            rows.append({"file": str(run / CHECKSUMS), "status": "damaged", "note": str(error)})
    present = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    others = {name for name in present - {CHECKSUMS} if name.split("/")[0] not in ("model", "checkpoints", ".lock")}
    for name in sorted(sums.keys() | others):
        if name not in sums:
            status, note = "unchecked", "no checksum" if sums else "no checksum until the run is finished"
        elif name not in present:
            status, note = "damaged", "missing"
        else:
            intact = file_record(run / name)["sha256"] == sums[name]
            status, note = ("ok", "as it was written") if intact else ("damaged", "changed since the run ended")
        rows.append({"file": str(run / name), "status": status, "note": note})
    return rows
