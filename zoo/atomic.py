"""Write files and folders atomically: a reader finds the old content or the new one, never a part."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder; on success flush it to the disk and rename it to the target, replacing an older folder."""
    with scratch_folder(target) as part:
        part.chmod(0o755)
        yield part
        for file in part.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)  # some libraries write files that only the owner can read
            sync(file)
        sync(part)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            target.rename(old / "folder")
            part.rename(target)
            shutil.rmtree(old)
        else:
            part.rename(target)
        sync(target.parent)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the target; it is removed on exit."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True) as part:
        yield Path(part)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with new_file(path) as file:
        file.write(data)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file; on success flush it to the disk and rename it to the path."""
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    sync(path.parent)


def to_json(value: object) -> str:
    """Return a value as indented JSON; NaN and infinity raise `ValueError`."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, see `to_json`."""
    write_text(path, to_json(value))


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def home() -> Path:
    """Return ZOO_HOME, or hypercomplex-zoo in the user's cache (XDG_CACHE_HOME or ~/.cache); the folder may not exist."""
    if folder := os.environ.get("ZOO_HOME"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hypercomplex-zoo"
