"""Paths of local data."""

from collections.abc import Iterable
from pathlib import Path

from zoo.errors import InputError


def existing(path: str | Path, preset: str) -> Path:
    """Return the path, `~` expanded and relative to the working directory."""
    expanded = Path(path).expanduser()
    if not expanded.exists():
        raise InputError(f"{preset}: {expanded} does not exist (working directory {Path.cwd()})", code="missing")
    if not expanded.is_file() and not expanded.is_dir():
        raise InputError(f"{preset}: {expanded} is a pipe or a device; save the data to a file first", code="data")
    return expanded


def one_file(preset: str, folder: Path, names: Iterable[str]) -> Path | None:
    """Return the file of a folder that has one of these names, if there is any."""
    files = [file for name in names if (file := folder / name).is_file()]
    if len(files) > 1:
        raise InputError(f"{preset}: {folder} holds both {files[0].name} and {files[1].name}; keep one", code="conflict")
    return files[0] if files else None


def listing(folder: Path) -> str:
    """List the first few names in a folder, for messages."""
    return ", ".join(sorted(file.name for file in folder.iterdir())[:8]) or "nothing"
