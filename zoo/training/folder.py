"""The folder of a run: its name, the claim that keeps other runs out, config.yaml."""

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from inspect import Parameter, signature
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import yaml
from filelock import lock_descriptor

from zoo import registry
from zoo.atomic import write_text
from zoo.checkpoint.lottery import RESULTS
from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError, check_rules
from zoo.registry import Spec
from zoo.training.options import Fit
from zoo.training.processes import is_first_process
from zoo.training.resolve import advised_embedding

LOCK = ".lock"
_WRITTEN = ("config.yaml", "metrics.csv", "summary.json", "model", RESULTS)
RUNS = Path("runs")
FREE = {"num_workers", "ddp_timeout", "checkpoint_every", "trainer.enable_progress_bar", "jobs", "on", "cpus", "gpus"}
"""Options that do not affect results, by the names of their flags."""


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
        self.path, self._handle, self.resumed = path, handle, resumed
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release the claim; a second call has no effect."""
        if self._handle is not None:
            if os.name == "nt":  # Windows removes no open file
                os.close(self._handle)
            with suppress(OSError):
                (self.path / LOCK).unlink()
            if os.name != "nt":  # elsewhere it must be gone before the next claim can succeed
                os.close(self._handle)
            self._handle = None

    def release(self) -> int | None:
        """Hand over the lock file to another object."""
        handle, self._handle = self._handle, None
        return handle

    def clear(self) -> None:
        """Remove everything except the lock."""
        for path in self.path.iterdir():
            if path.name != LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def discard(self) -> None:
        """Remove the folder of a run that saved nothing, and runs/ if it is empty then."""
        if self._handle is not None and not self.resumed:
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
        if (handle := folder.release()) is not None:
            os.close(handle)


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_leave_to_parent)


def claim(options: Fit, name: str | None = None) -> RunFolder:
    """Create the folder of a run (`run_dir`, or the next free name in runs/), or open that of a run that is resumed."""
    try:
        if options.resume == "auto":
            return _unfinished(options) or claim(replace(options, resume=None), name)
        if options.resume is not None:
            return _reopened(Path(options.resume).expanduser())
        if options.run_dir is not None:
            return _claim(Path(options.run_dir).expanduser())
        return _claim_new(name or run_name(options))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        text = f"cannot create the run folder '{error.filename}': {error.strerror}; choose another with --run-dir"
        raise InputError(text) from error


def _reopened(folder: Path) -> RunFolder:
    """Hold the folder of a run that is resumed, after removing half-written files of a crash."""
    read_config(folder)
    held = hold(folder)
    for pattern in ("checkpoints/.*.part", *(f".{name}-*" for name in _WRITTEN)):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return RunFolder(folder, held.release(), resumed=True)


def _unfinished(options: Fit) -> RunFolder | None:
    """Hold the newest unfinished run of this configuration, except for `FREE` options, that no process is training.

    A given folder without a checkpoint is cleared and used again, so that a retry loop can name one folder.
    """
    given, wanted = options.run_dir, decisive(config_values(options))
    folders = [Path(given).expanduser()] if given is not None else sorted(RUNS.glob("*/"), key=_modified, reverse=True)
    for folder in folders:
        parts = ("checkpoints/*.ckpt", "fold-*", "*/seed-*")  # of a run, of folds, of rounds of lottery tickets
        begun = any(any(folder.glob(part)) for part in parts)
        if (folder / "summary.json").exists() or (given is None and (not begun or _is_over(folder))):
            continue
        with suppress(InputError):
            if decisive(read_config(folder)) == wanted:
                if begun:
                    return _reopened(folder)
                held = hold(folder)
                held.clear()
                return held
    return None


def finished_run(options: Fit) -> dict[str, Any] | None:
    """Return the summary of the run in `run_dir` if ``resume=auto`` finds it finished under these options, else None."""
    if options.resume != "auto" or options.run_dir is None:
        return None
    folder = Path(options.run_dir).expanduser()
    if not (folder / "summary.json").is_file() or decisive(read_config(folder)) != decisive(config_values(options)):
        return None
    if is_first_process():
        print(f"the run '{folder}' is finished: nothing is left to train", flush=True)  # noqa: T201 (its purpose)
    return read_summary(folder)


def _is_over(folder: Path) -> bool:
    """Return whether this is a finished experiment with lottery tickets."""
    with suppress(InputError):
        return bool(read_json(folder / RESULTS).get("left") == 0)
    return False


def _modified(folder: Path) -> float:
    found = (path for part in ("checkpoints/*.ckpt", "fold-*/checkpoints/*.ckpt", RESULTS) for path in folder.glob(part))
    return max((path.stat().st_mtime for path in found), default=0.0)


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
        raise InputError(used)  # and leave nothing of ours in it
    try:
        claimed = hold(folder)
    except OSError:
        _remove(folder)
        raise
    for path in folder.glob(".config.yaml-*"):  # of a run that was killed while it wrote its first file
        path.unlink()
    if [path.name for path in folder.iterdir()] != [LOCK]:
        claimed.close()
        raise InputError(used)
    return claimed


def hold(folder: Path) -> RunFolder:
    """Lock an existing folder against other processes.

    Raises:
        InputError: If another process holds it.
    """
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


def run_name(options: Fit) -> str:
    """Name a run after what it trains, options that are at their defaults left out.

    Example:
        >>> run_name(Fit(backbone="vit(dim=64, depth=2)", algebra="phm(n=4)", data="digits", seed=1))
        'vit-depth2-phm-n4-digits-seed1'
    """
    parts = [
        shortest("zoo.backbones", options.backbone),
        shortest("zoo.algebras", options.algebra),
        "" if options.scope == "all" else options.scope,
        "" if options.embedding == advised_embedding(options.algebra) else shortest("zoo.embeddings", options.embedding or ""),
        shortest("zoo.datasets", options.data or ""),
    ]
    return f"{file_name('-'.join(part for part in parts if part))}-seed{options.seed}"


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
    kept = {
        name: value for name, value in spec.options.items() if (type(value), value) != (type(defaults[name]), defaults[name])
    }
    return str(Spec(spec.name, kept))


def config_values(options: Fit) -> dict[str, Any]:
    """Return the content of config.yaml."""
    own = ("run_dir", "resume")  # of this run alone: a repetition begins anew, in a folder of its own
    values = {key: value for key, value in asdict(options).items() if key not in own and value is not None}
    values["trainer"] = {key: value for key, value in options.trainer.items() if value is not None}
    return dict(yaml.safe_load(yaml.dump(values, Dumper=_Dumper, sort_keys=False)))


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by the names of their flags."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= {f"{name}.{part}": item for part, item in value.items()} if isinstance(value, Mapping) else {name: value}
    return found


def decisive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that affect results, by the names of their flags."""
    return {name: value for name, value in flat(values).items() if name not in FREE}


def write_config(folder: Path, options: Fit) -> None:
    """Write config.yaml: enough for ``zoo fit -c`` to repeat the run."""
    write_text(folder / "config.yaml", yaml.safe_dump(config_values(options), sort_keys=False))


def read_config(run: Path) -> dict[str, Any]:
    """Read config.yaml of a run."""
    path = run / "config.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"'{run}' is no run to resume: {path} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"'{path}' is no YAML any more: write it again as zoo fit --print_config prints it") from error
    if not isinstance(values, dict):
        raise InputError(f"'{path}' holds no options")
    return values


def read_summary(run: Path, needed: Iterable[str] = ()) -> dict[str, Any]:
    """Load the summary of a finished run and check that it has metrics, parameters and the needed keys."""
    file = run / "summary.json"
    summary = read_json(file)
    whole = all(isinstance(summary.get(key), dict) for key in ("metrics", "parameters")) and summary.keys() >= set(needed)
    check_rules((whole, f"'{file}' is no summary of a run: remove the folder of the run, and it is run again"))
    return summary


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Write an object that Python gave, such as a callback, as its type: to be read, and refused by ``zoo fit -c``."""

    def represent_object(self, value: object) -> yaml.Node:
        return self.represent_str(f"{type(value).__module__}.{type(value).__qualname__} (an object given in Python)")


_Dumper.add_multi_representer(object, _Dumper.represent_object)
