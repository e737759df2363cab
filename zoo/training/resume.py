"""Resume a run from its newest intact checkpoint, and recover the model of a run that crashed."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from zoo.backbones.build import backbone, untrained
from zoo.checkpoint import save
from zoo.errors import InputError
from zoo.training.checkpoint_io import read_checkpoint, read_run_id, stated_checksum
from zoo.training.checkpoints import MODEL, RUN, STATE, checkpoint_files, settled
from zoo.training.folder import config_values, flat, hold, read_config
from zoo.training.options import Fit
from zoo.training.processes import is_first_process

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
        found: dict[str, Any] = self.checkpoint[STATE]
        return found


def resume(options: Fit, folder: Path, processes: int = 1) -> Resumed:
    """Load the newest intact checkpoint of a run, and print its position and the options that changed.

    Raises:
        InputError: If an option changed that must not, the run is finished, or no checkpoint is intact.
    """
    old, new = flat(read_config(folder)), flat(config_values(options))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    path, checkpoint = newest(folder)
    theirs = settled(Fit("", "")) | checkpoint[RUN]  # an option younger than the checkpoint was at its default
    before = len(checkpoint[STATE]["ranks"])
    for name, value in settled(options).items():
        if name == "batch_size" and isinstance(value, int) and processes != before:
            check_batch(folder, theirs[name], before, value, processes)
        elif theirs.get(name) != value:
            raise InputError(f"the run '{folder}' has {name}={theirs.get(name)}, not {value}: begin a new run for another one")
    epochs, max_epochs = checkpoint[STATE]["epochs"], options.trainer.get("max_epochs")
    if isinstance(max_epochs, int) and 0 <= max_epochs < epochs:
        text = f"--trainer.max_epochs {max_epochs}: the run '{folder}' has trained {epochs} epochs already"
        raise InputError(text, code="conflict")
    finished = checkpoint[STATE]["finished"] and not any(name.removeprefix("trainer.") in _ENDS for name in names)
    if finished and (folder / "summary.json").exists():
        raise InputError(f"the run '{folder}' is finished: raise --trainer.max_epochs or max_steps to train it further")
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
        raise InputError(f"the data of the run '{folder}' have changed since it began: put them back, or begin a new run")


def check_batch(folder: Path, theirs: int, before: int, size: int, processes: int) -> None:
    """Refuse another number of processes if the rows of a step would change.

    Raises:
        InputError: If the rows of a step, those of all processes together, would be more or fewer than before.
    """
    rows = theirs * before
    if size * processes != rows:
        advice = f"use --batch-size {rows // processes}" if rows % processes == 0 else f"use {before} processes"
        sizes = f"({before} x {theirs}), not {processes} x {size}"
        raise InputError(f"a step of the run '{folder}' has {rows} rows {sizes}: {advice}")


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
        raise InputError(f"{wrong[0]}; no checkpoint before it is whole")
    raise InputError(f"'{folder}' has no checkpoint: no step of it was finished")


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
        save(folder / "model", net, config, summary, model["files"])
    made = {"folder": folder / "model", "checkpoint": folder / "checkpoints" / best["file"]}
    return {name: str(path) for name, path in made.items()} | {"epoch": best["epoch"]}
