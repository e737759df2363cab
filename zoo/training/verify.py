"""Check every file that a run wrote: model, training checkpoints, and the files listed in ``checksums.json``."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from zoo import checkpoint
from zoo.atomic import write_json
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError
from zoo.training.checkpoint_io import RUN_ID, read_run_id
from zoo.training.checkpoints import checkpoint_files
from zoo.training.resume import read_own

CHECKSUMS = "checksums.json"
_OWN = ("config.yaml", "metrics.csv", "summary.json", "tensorboard/*")


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of the files of a finished run that contain no checksum of their own."""
    paths = [path for pattern in _OWN for path in sorted(folder.glob(pattern)) if path.is_file()]
    write_json(folder / CHECKSUMS, {path.relative_to(folder).as_posix(): _digest(path) for path in paths})


def verify(run: Path) -> list[dict[str, str]]:
    """Check the files of a run or of a model folder without unpickling anything.

    Returns:
        A row of ``file``, ``status`` (``ok``, ``damaged`` or ``unchecked``) and ``note`` for every file.

    Raises:
        InputError: If the folder has neither a model nor training checkpoints.
    """
    rows: list[dict[str, str]] = []

    def check(path: Path, describe: Callable[[], str]) -> None:
        try:
            rows.append({"file": str(path), "status": "ok", "note": describe()})
        except InputError as error:
            rows.append({"file": str(path), "status": "damaged", "note": str(error)})

    training = checkpoint_files(run / "checkpoints")
    if not training or (run / "model").exists():
        folder = checkpoint.find(run)
        check(folder, lambda: _model(folder))
        if folder == run:
            return rows
    for path in training:
        check(path, lambda path=path: f"after step {read_own(path, run)['global_step']}")  # type: ignore[misc]
    if training:
        check(run / RUN_ID, lambda: _run_id(run))
    return rows + _listed(run)


def _model(folder: Path) -> str:
    config = checkpoint.read_config(folder)
    if config["backbone"] is None or config["algebra"] is None:
        return "every file is as it was saved; its network has no spec and was not rebuilt"
    net = checkpoint.load_network(folder, config)
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
            intact = _digest(run / name) == sums[name]
            status, note = ("ok", "as it was written") if intact else ("damaged", "changed since the run ended")
        rows.append({"file": str(run / name), "status": status, "note": note})
    return rows


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = sha256()
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
