"""Local paths of data sets, checks of their content, and errors in data."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from zoo.errors import InputError

OptionalPath = str | Path | None


class DataError(InputError):
    """An error in the user's data: a row, image or file that cannot be used."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, code="data")


def resolve_path(path: str | Path, preset: str) -> Path:
    """Expand `~` in the path of an existing file or folder; raise `InputError` for any other path."""
    expanded = Path(path).expanduser()
    if not expanded.exists():
        raise InputError(f"{preset}: {expanded} does not exist (working directory {Path.cwd()})", code="missing")
    if not expanded.is_file() and not expanded.is_dir():  # opening a pipe could wait forever
        raise DataError(f"{preset}: {expanded} is a pipe or a device; save the data to a file first")
    return expanded


def find_file(preset: str, folder: Path, names: Iterable[str]) -> Path | None:
    """Return the file in a folder with one of these names, or None; two such files are a conflict."""
    files = [file for name in names if (file := folder / name).is_file()]
    if len(files) > 1:
        raise InputError(f"{preset}: {folder} has both {files[0].name} and {files[1].name}; keep one", code="conflict")
    return files[0] if files else None


def quote_few(names: Iterable[object], most: int = 8) -> str:
    """List the first few names for a message, quoted and truncated."""
    quoted = [repr(str(name)[:40]) for name in names]
    return ", ".join(quoted[:most]) + (" ..." if len(quoted) > most else "")


def check_pinned(name: str, expected: str, content: bytes, package: str = "scikit-learn") -> None:
    """Raise `InputError` if the SHA-256 of data in an installed package has changed."""
    if (sha256 := hashlib.sha256(content).hexdigest()) != expected:
        digests = f"SHA-256 {sha256[:12]}, expected {expected[:12]}"
        raise InputError(f"{name}: the installed {package} has other data ({digests})", code="mismatch")
