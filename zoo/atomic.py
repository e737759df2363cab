"""Files and folders that are either whole or not there."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a temporary folder beside the target; on success flush it to the disk and put it in the target's place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _naming(target):
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        part.chmod(0o755)
        yield part
        for file in part.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)  # some writers keep their files to themselves
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
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the target, and remove it in the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _naming(target):
        part = tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent)
    with part:
        yield Path(part.name)


def write_text(path: Path, text: str) -> None:
    """Write a file of text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    with new_file(path) as file:
        file.write(data)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside the path; on success flush it to the disk and give it its name."""
    with _naming(path):
        handle, part = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with open(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(part, 0o644)
            os.replace(part, path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
        sync(path.parent)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let an error name what is to be written, not the temporary file or folder beside it."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def to_json(value: Any) -> str:
    """Return a value as readable JSON; NaN and infinity are refused."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON, see `to_json`."""
    write_text(path, to_json(value))


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
