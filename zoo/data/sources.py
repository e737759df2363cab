"""Paths of local data."""

from collections.abc import Iterable
from pathlib import Path

from zoo.errors import InputError


def existing(path: str | Path, preset: str) -> Path:
    """Return the path, `~` expanded and relative to the working directory."""
    place = Path(path).expanduser()
    if not place.exists():
        raise InputError(f"{preset}: {place} does not exist (working directory {Path.cwd()})", code="missing")
    if not place.is_file() and not place.is_dir():
        raise InputError(f"{preset}: {place} is a pipe or a device; save the data to a file first", code="data")
    return place


def one_file(preset: str, folder: Path, names: Iterable[str]) -> Path | None:
    """Return the file of a folder that has one of these names, if there is any."""
    there = [file for name in names if (file := folder / name).is_file()]
    if len(there) > 1:
        raise InputError(f"{preset}: {folder} holds both {there[0].name} and {there[1].name}; keep one", code="conflict")
    return there[0] if there else None


def listing(folder: Path) -> str:
    """List the first few names in a folder, for messages."""
    return ", ".join(sorted(file.name for file in folder.iterdir())[:8]) or "nothing"
