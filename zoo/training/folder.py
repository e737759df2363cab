"""The folder of a run: its name, the claim that keeps other runs out, config.yaml."""

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from inspect import Parameter, signature
from itertools import count
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import yaml
from filelock import lock_descriptor

from zoo import registry
from zoo.atomic import write_text
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError, check_rules
from zoo.registry import Spec
from zoo.training.options import decisive
from zoo.training.processes import is_first_process
from zoo.training.resolve import advised_embedding

LOCK = ".lock"
_WRITTEN = ("config.yaml", "metrics.csv", "summary.json", "model", "lottery.json")
RUNS = Path("runs")


class RunFolder:
    """A folder that only one run writes to, from `claim` until `close` or until the process ends.

    The claim is a file lock, which the operating system releases when the process ends. In the other processes of a run the
    object only holds the path.

    Args:
        path: The folder.
        handle: The open lock file; None in a process that has not claimed the folder itself.
        resumed: Whether the folder holds a run that is resumed.
    """

    def __init__(self, path: Path, handle: int | None = None, resumed: bool = False) -> None:
        self.path, self.handle, self.resumed = path, handle, resumed
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the claim; a second call has no effect."""
        if self.handle is not None:
            if os.name == "nt":  # Windows removes no open file
                os.close(self.handle)
            with suppress(OSError):
                (self.path / LOCK).unlink()
            if os.name != "nt":  # elsewhere it must be gone before the next claim can succeed
                os.close(self.handle)
            self.handle = None

    def clear(self) -> None:
        """Remove everything except the lock."""
        for path in self.path.iterdir():
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def discard(self) -> None:
        """Remove the folder of a run that saved nothing, and runs/ if it is empty then."""
        if self.handle is not None and not self.resumed:
            with suppress(OSError):
                self.clear()
                self.close()
                _remove(self.path)
        self.close()


def _remove(folder: Path) -> None:
    """Remove an empty folder, and runs/ if that is empty then."""
    with suppress(OSError):
        folder.rmdir()
        if folder.parent == RUNS:
            RUNS.rmdir()


_OPEN: WeakSet[RunFolder] = WeakSet()


def _leave_to_parent() -> None:
    """Close lock files in a process that was forked, such as a loader worker: it may outlive the run by seconds."""
    for folder in tuple(_OPEN):
        if folder.handle is not None:
            os.close(folder.handle)
            folder.handle = None


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_leave_to_parent)


def claim(
    config: Mapping[str, Any], run_dir: str | None = None, resume: str | None = None, name: str | None = None
) -> RunFolder:
    """Create the folder of a run, or open that of a run that is resumed.

    Args:
        config: The content of its config.yaml.
        run_dir: The folder; by default the next free one in runs/.
        resume: The folder of the run to resume; or ``auto``, the newest unfinished one of this configuration, if any.
        name: Its name in runs/; by default `run_name`.
    """
    try:
        if resume not in (None, "auto"):
            return _reopened(Path(str(resume)).expanduser())
        if resume == "auto" and (folder := _unfinished(config, run_dir)) is not None:
            return folder
        if run_dir is not None:
            return _claim(Path(run_dir).expanduser())
        return _claim_new(name or run_name(config))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        text = f"cannot create the run folder '{error.filename}': {error.strerror}; choose another with --run-dir"
        raise InputError(text, code="failed") from error


def _reopened(folder: Path) -> RunFolder:
    """Hold the folder of a run that is resumed, after removing half-written files of a crash."""
    read_config(folder)
    held = hold(folder)
    for pattern in ("checkpoints/.*.ckpt-*", "*/seed-*/.*.ckpt-*", *(f".{name}-*" for name in _WRITTEN)):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    held.resumed = True
    return held


def _unfinished(config: Mapping[str, Any], run_dir: str | None) -> RunFolder | None:
    """Hold the newest unfinished run of this configuration, except for free options, that no process is training.

    A given folder without a checkpoint is cleared and used again, so that a retry loop can name one folder.
    """
    folders = sorted(RUNS.glob("*/"), key=_modified, reverse=True) if run_dir is None else [Path(run_dir).expanduser()]
    for folder in folders:
        parts = ("checkpoints/*.ckpt", "fold-*", "*/seed-*")  # of a run, of folds, of rounds of lottery tickets
        begun = any(any(folder.glob(part)) for part in parts)
        if (folder / "summary.json").exists() or (run_dir is None and (not begun or _is_over(folder))):
            continue
        with suppress(InputError):
            if decisive(read_config(folder)) == decisive(config):
                if begun:
                    return _reopened(folder)
                held = hold(folder)
                held.clear()
                return held
    return None


def finished_run(config: Mapping[str, Any], run_dir: str | None, resume: str | None) -> dict[str, Any] | None:
    """Return the summary of the run in `run_dir` if ``resume=auto`` finds it finished under these options, else None."""
    if resume != "auto" or run_dir is None:
        return None
    folder = Path(run_dir).expanduser()
    if not (folder / "summary.json").is_file() or decisive(read_config(folder)) != decisive(config):
        return None
    if is_first_process():
        print(f"the run '{folder}' is finished: nothing is left to train", flush=True)  # noqa: T201 (its purpose)
    return read_summary(folder)


def _is_over(folder: Path) -> bool:
    """Return whether this is a finished experiment with lottery tickets."""
    with suppress(InputError):
        return bool(read_json(folder / "lottery.json").get("left") == 0)
    return False


def _modified(folder: Path) -> float:
    files = (path for part in ("checkpoints/*.ckpt", "fold-*/checkpoints/*.ckpt", "lottery.json") for path in folder.glob(part))
    return max((path.stat().st_mtime for path in files), default=0.0)


def _claim_new(name: str) -> RunFolder:
    RUNS.mkdir(exist_ok=True)
    for number in count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return _claim(folder)
    raise AssertionError("unreachable")


def _claim(folder: Path) -> RunFolder:
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / LOCK
    used = f"the run folder '{folder}' is not empty: choose another with --run-dir, or remove it"
    if not lock.exists() and any(folder.iterdir()):
        raise InputError(used, code="conflict")  # and leave nothing of ours in it
    try:
        claimed = hold(folder)
    except OSError:
        _remove(folder)
        raise
    for path in folder.glob(".config.yaml-*"):  # of a run that was killed while it wrote its first file
        path.unlink()
    if [path.name for path in folder.iterdir()] != [LOCK]:
        claimed.close()
        raise InputError(used, code="conflict")
    return claimed


def hold(folder: Path) -> RunFolder:
    """Lock an existing folder against other processes."""
    lock = folder / LOCK
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        is_free = lock_descriptor(handle, blocking=False)
    except OSError:  # some network file systems have no locks; an empty folder is all that can be asked for there
        is_free = True
    if not is_free:
        holder = "another process"
        with suppress(OSError):  # Windows lets nobody read a locked file
            holder = os.read(handle, 200).decode(errors="replace").strip() or holder
        os.close(handle)
        text = f"another run ({holder}) writes to '{folder}': wait for it, or choose another --run-dir"
        raise InputError(text, code="busy")
    if not lock.exists() or os.stat(lock).st_ino != os.fstat(handle).st_ino:  # its owner has just removed it
        os.close(handle)
        folder.mkdir(parents=True, exist_ok=True)
        return hold(folder)
    os.ftruncate(handle, 0)
    with suppress(OSError):  # a disk that is full: the first file that matters says so
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return RunFolder(folder, handle)


def run_name(config: Mapping[str, Any]) -> str:
    """Name a run after what it trains, without options that are at their defaults.

    Example:
        >>> run_name({"backbone": "vit(dim=64, depth=2)", "algebra": "phm(n=4)", "data": "digits", "seed": 1})
        'vit-depth2-phm-n4-digits-seed1'
    """
    scope, embedding = config.get("scope", "all"), config.get("embedding")
    parts = [
        shortest("zoo.backbones", config["backbone"]),
        shortest("zoo.algebras", config["algebra"]),
        "" if scope == "all" else scope,
        "" if embedding in (None, advised_embedding(config["algebra"])) else shortest("zoo.embeddings", str(embedding)),
        shortest("zoo.datasets", config.get("data", "")),
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


def shortest(group: str, text: str) -> str:
    """Write a spec without the options that are at their defaults; any other text is returned as it is."""
    try:
        entry, long = registry.resolve(group, text)
        spec, parameters = Spec.parse(text), signature(registry.load(entry)).parameters
    except (InputError, ValueError, TypeError):
        return text
    spec = spec if "variant" in long.options else long  # phm-4 is phm(n=4), but timm/resnet18 stays
    unset = Parameter("unset", Parameter.KEYWORD_ONLY)
    defaults = {name: parameters.get(name, unset).default for name in spec.options}
    changed = {
        name: value for name, value in spec.options.items() if (type(value), value) != (type(defaults[name]), defaults[name])
    }
    return str(Spec(spec.name, changed))


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write config.yaml: enough for ``zoo fit -c`` to repeat the run."""
    write_text(folder / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))


def read_config(run: Path) -> dict[str, Any]:
    """Read config.yaml of a run."""
    path = run / "config.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"'{run}' is no run to resume: {path} cannot be read ({error.strerror})"
        raise InputError(text, code="missing") from error
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        text = f"'{path}' is damaged: write it again as zoo fit --print-config prints it"
        raise InputError(text, code="corrupt")
    return values


def read_summary(run: Path, needed: Iterable[str] = ()) -> dict[str, Any]:
    """Load the summary of a finished run and check that it has metrics, parameters and the needed keys."""
    file = run / "summary.json"
    summary = read_json(file)
    whole = all(isinstance(summary.get(key), dict) for key in ("metrics", "parameters")) and summary.keys() >= set(needed)
    check_rules((whole, f"'{file}' is no summary of a run: remove the folder of the run, and it is run again"))
    return summary
