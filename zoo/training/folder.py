"""The folder that every run owns."""

import os
import re
import shutil
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path

import yaml

from zoo.checkpoint.atomic import write_text
from zoo.errors import InputError
from zoo.training.options import Fit

# Lightning starts the other ranks as processes that inherit the environment; they must write where rank 0 does.
_SHARED = "ZOO_RUN_FOLDER"


def claim(options: Fit) -> Path:
    """Create the folder of a run, which no other run has: `run_dir`, or the next free telling name in runs/.

    Creating it is atomic, so two runs that start at the same moment get two folders.

    Raises:
        InputError: If a given folder exists and is not empty, or the place is not writable.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise InputError("start the run without torchrun: --trainer.devices N starts N processes itself")
    if os.environ.get("LOCAL_RANK", "0") != "0" and _SHARED in os.environ:
        return Path(os.environ[_SHARED])
    try:
        folder = _claim_exactly(Path(options.run_dir).expanduser()) if options.run_dir is not None else _claim_new(options)
    except OSError as error:
        text = f"cannot create the run folder '{error.filename}': {error.strerror}; choose another with --run-dir"
        raise InputError(text) from error
    os.environ[_SHARED] = str(folder)
    return folder


def _claim_new(options: Fit) -> Path:
    root, name = Path("runs"), telling_name(options)
    root.mkdir(exist_ok=True)
    for number in count(1):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("unreachable")


def _claim_exactly(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InputError(f"the run folder '{folder}' is not empty: choose another with --run-dir, or remove it")
    (folder / ".running").touch(exist_ok=False)
    (folder / ".running").unlink()
    return folder


def release(folder: Path) -> None:
    """Remove the folder of a run that ended before its first epoch did, and runs/ if that is empty now."""
    if (folder / "metrics.csv").exists() or (folder / "checkpoints").exists():
        return
    with suppress(OSError):
        shutil.rmtree(folder)
        if folder.parent == Path("runs"):
            folder.parent.rmdir()


def telling_name(options: Fit) -> str:
    """Name a run after what it trains.

    Example:
        >>> telling_name(Fit(backbone="vit(dim=64)", algebra="phm(n=4)", data="digits", seed=1))
        'vit-dim64-phm-n4-digits-seed1'
    """
    scope = [] if options.scope == "all" else [options.scope]
    text = "-".join([options.backbone, options.algebra, *scope, options.data or ""])
    text = re.sub(r"path='?[^,)]*/", "path=", text)
    text = re.sub(r"[^A-Za-z0-9_.]+", "-", text.replace("=", "")).strip("-.")
    return f"{text[:100]}-seed{options.seed}"


def write_config(folder: Path, options: Fit) -> None:
    """Write config.yaml: enough for ``zoo fit -c`` to repeat the run."""
    own = ("run_dir", "ckpt_path")  # of this run alone: a repetition begins anew, in a folder of its own
    values = {key: value for key, value in asdict(options).items() if key not in own and value is not None}
    write_text(folder / "config.yaml", yaml.dump(values, Dumper=_Dumper, sort_keys=False))


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Write an object that Python gave, such as a callback, as its type: to be read, and refused by ``zoo fit -c``."""

    def represent_object(self, value: object) -> yaml.Node:
        return self.represent_str(f"{type(value).__module__}.{type(value).__qualname__} (an object given in Python)")


_Dumper.add_multi_representer(object, _Dumper.represent_object)
