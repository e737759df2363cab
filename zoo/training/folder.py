"""The run folder: its name, its lock, config.yaml, summary.json and checksums.json."""

import errno
import hashlib
import math
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any, Self

import yaml
from filelock import BaseFileLock, FileLock, Timeout

from zoo import registry
from zoo.atomic import to_json, write_json, write_text
from zoo.checkpoint.manifest import file_record, read_json
from zoo.checkpoint.run_config import changed_options, read_run_config
from zoo.errors import InputError
from zoo.registry import Spec
from zoo.training.options import is_object
from zoo.training.processes import Processes, is_first_process
from zoo.training.resolve import default_embedding
from zoo.training.summary import Summary

LOCK, CHECKSUMS = ".lock", "checksums.json"
_WRITTEN = ("config.yaml", "metrics.csv", "summary.json", "model", "lottery.json")
_PROGRESS = ("checkpoints/*.ckpt", "fold-*/checkpoints/*.ckpt", "*/seed-*", "lottery.json")
"""Patterns of the saved progress of a run, of folds and of rounds of lottery tickets."""
_CHECKED = ("config.yaml", "metrics.csv", "tensorboard/*")
RUNS = Path("runs")


class RunFolder:
    """A run folder that is locked until `close` or until the process ends.

    ``lock`` is None on ranks other than 0, and ``resumed`` tells whether the run in the folder is resumed.
    """

    def __init__(self, path: Path, lock: BaseFileLock | None = None, resumed: bool = False) -> None:
        self.path, self.lock, self.resumed = path, lock, resumed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock; a second call has no effect."""
        if self.lock is not None and self.lock.is_locked:
            with suppress(OSError):  # Windows cannot remove open files
                (self.path / LOCK).unlink()
            self.lock.release()

    def clear(self) -> None:
        """Remove everything except the lock file."""
        for path in self.path.iterdir():
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Discard the folder if the body raises an error."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the folder of a new run that has saved nothing."""
        if self.lock is not None and not self.resumed:
            with suppress(OSError):
                self.clear()
                self.close()
                self.path.rmdir()
                if self.path.parent == RUNS:
                    RUNS.rmdir()  # if it is empty
        self.close()


def claim(
    config: Mapping[str, object], run_dir: str | None = None, resume: str | None = None, name: str | None = None
) -> RunFolder:
    """Create and lock the folder of a new run (by default in runs/, with this name or `run_name`), or that of a run to resume.

    ``resume`` is a folder, or ``auto`` for the newest unfinished run of this configuration, if any.
    """
    try:
        if resume not in (None, "auto"):
            return _reopen(Path(str(resume)).expanduser())
        if resume == "auto" and (folder := _reopen_unfinished(config, run_dir)) is not None:
            return folder
        if run_dir is not None:
            return _create(Path(run_dir).expanduser())
        return _create_numbered(name or run_name(config))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        text = f"cannot create the run folder '{error.filename}': {error.strerror}; use another --run-dir"
        raise InputError(text, code="failed") from error


@contextmanager
def claim_on_rank_0(
    config: Mapping[str, object], run_dir: str | None, resume: str | None, processes: Processes, name: str | None = None
) -> Iterator[RunFolder]:
    """Claim the folder of a run on rank 0 (`claim`) and return it on all ranks."""
    claims: list[RunFolder] = []

    def claim_folder() -> tuple[str, bool]:
        claims.append(claim(config, run_dir, resume, name))
        return str(claims[0].path), claims[0].resumed

    path, resumed = processes.first(claim_folder)
    with claims[0] if claims else RunFolder(Path(path), resumed=resumed) as folder:
        yield folder


def _reopen(folder: Path) -> RunFolder:
    """Lock the folder of a run to resume, and remove temporary files that a crash has left."""
    read_run_config(folder)
    locked = lock_folder(folder)
    for pattern in ("checkpoints/.*.ckpt-*", "*/seed-*/.*.ckpt-*", *(f".{name}-*" for name in _WRITTEN)):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    locked.resumed = True
    return locked


def _reopen_unfinished(config: Mapping[str, object], run_dir: str | None) -> RunFolder | None:
    """Lock the newest unfinished run of this configuration that no process is training, in runs/ or in `run_dir`.

    Options that do not affect results may differ. If the run in `run_dir` has no checkpoint, the folder is cleared and reused.
    """
    folders = sorted(RUNS.glob("*/"), key=_last_saved, reverse=True) if run_dir is None else [Path(run_dir).expanduser()]
    for folder in folders:
        if (folder / "summary.json").exists() or (run_dir is None and _is_finished_lottery(folder)):
            continue
        with suppress(InputError):
            if not changed_options(folder, config) and (run_dir is not None or _last_saved(folder)):
                if _last_saved(folder):
                    return _reopen(folder)
                locked = lock_folder(folder)
                locked.clear()
                return locked
    return None


def _last_saved(folder: Path) -> float:
    """Return when a run has last saved its progress; 0 if it has not."""
    return max((path.stat().st_mtime for pattern in _PROGRESS for path in folder.glob(pattern)), default=0.0)


def finished_run(config: Mapping[str, object], run_dir: str | None, resume: str | None) -> Summary | None:
    """Return the summary of a finished run of this configuration in `run_dir` with ``resume=auto``; otherwise None."""
    if resume != "auto" or run_dir is None:
        return None
    folder = Path(run_dir).expanduser()
    if not (folder / "summary.json").is_file() or changed_options(folder, config):
        return None
    if is_first_process():
        print(f"the run '{folder}' is already finished", flush=True)  # noqa: T201
    return read_summary(folder)


def _is_finished_lottery(folder: Path) -> bool:
    with suppress(InputError):
        return bool(read_json(folder / "lottery.json").get("left") == 0)
    return False


def _create_numbered(name: str) -> RunFolder:
    RUNS.mkdir(exist_ok=True)
    for number in count(1):
        with suppress(FileExistsError):
            folder = RUNS / (name if number == 1 else f"{name}-{number}")
            folder.mkdir()
            return lock_folder(folder)
    raise AssertionError("unreachable")


def _create(folder: Path) -> RunFolder:
    folder.mkdir(parents=True, exist_ok=True)
    locked = lock_folder(folder)
    if any(path.name != LOCK and not path.name.startswith(".config.yaml-") for path in folder.iterdir()):
        locked.close()
        text = f"the run folder '{folder}' is not empty: use another --run-dir, or delete it"
        raise InputError(text, code="conflict")
    locked.clear()  # the temporary file of a run that was killed while it wrote its first file
    return locked


def lock_folder(folder: Path) -> RunFolder:
    """Lock an existing run folder against other processes."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        text = f"another run is using '{folder}': wait for it, or use another --run-dir"
        raise InputError(text, code="busy") from error
    return RunFolder(folder, lock)


def run_name(config: Mapping[str, Any]) -> str:
    """Name a run after what it trains, without options that are at their defaults.

    Example:
        >>> run_name({"backbone": "vit(dim=64, depth=2)", "algebra": "phm(n=4)", "data": "digits", "seed": 1})
        'vit-depth2-phm-n4-digits-seed1'
    """
    scope, embedding = config.get("scope", "all"), config.get("embedding")
    parts = [
        short_spec("zoo.backbones", config["backbone"]),
        short_spec("zoo.algebras", config["algebra"]),
        "" if scope == "all" else scope,
        "" if embedding in (None, default_embedding(config["algebra"])) else short_spec("zoo.embeddings", str(embedding)),
        "data" if is_object(config.get("data")) else short_spec("zoo.datasets", config.get("data", "")),
    ]
    return f"{file_name('-'.join(part for part in parts if part))}-seed{config['seed']}"


def file_name(text: str) -> str:
    """Slugify a text such as a spec.

    Example:
        >>> file_name("phm(n=4, rule='a/b')")
        'phm-n4-rule-a-b'
    """
    text = re.sub(r"path='?[^,)]*/", "path=", text)
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text.replace("=", "")).strip("-.")[:100]


def short_spec(group: str, text: str) -> str:
    """Write a spec without options at their defaults; return any other text unchanged."""
    try:
        entry, long = registry.resolve(group, text)
        spec, parameters = Spec.parse(text), signature(registry.load(entry)).parameters
    except (InputError, ValueError, TypeError):
        return text
    spec = spec if "variant" in long.options else long  # phm-4 becomes phm(n=4), but timm/resnet18 is unchanged
    defaults = {name: (type(parameter.default), parameter.default) for name, parameter in parameters.items()}
    changed = {name: value for name, value in spec.options.items() if defaults.get(name) != (type(value), value)}
    return str(Spec(spec.name, changed))


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Write config.yaml, from which ``zoo fit -c`` repeats the run."""
    write_text(folder / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))


def read_summary(run: Path, needed: Iterable[str] = ()) -> Summary:
    """Load the summary of a finished run and check that it has metrics, parameters and the needed keys."""
    file = run / "summary.json"
    return Summary.from_json(read_json(file), file, needed)


def write_summary(folder: Path, summary: Summary) -> None:
    """Write checksums.json, with the size and SHA-256 of all files that do not contain their own, then summary.json.

    summary.json marks a run as finished, so it is the last file.
    """
    paths = [path for pattern in _CHECKED for path in sorted(folder.glob(pattern)) if path.is_file()]
    records = {path.relative_to(folder).as_posix(): file_record(path) for path in paths}
    text = to_json(summary.to_json())
    data = text.encode()
    records["summary.json"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_json(folder / CHECKSUMS, records)
    write_text(folder / "summary.json", text)


def has_checksum(name: str) -> bool:
    """Return whether `write_summary` lists a file, by its name relative to the run folder."""
    patterns = *_CHECKED, "summary.json"
    return any(fnmatchcase(name, pattern) and name.count("/") == pattern.count("/") for pattern in patterns)


def finite(value: float) -> float | None:
    """Convert a number for JSON; NaN and infinity become None."""
    return float(value) if math.isfinite(value) else None
