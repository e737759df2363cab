"""Cache of downloaded models under ZOO_HOME, shared by processes; a cached model is always complete."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from zoo.atomic import home, write_bytes
from zoo.checkpoint.manifest import file_record, read_manifest, verify
from zoo.errors import InputError
from zoo.hub.download import Address, download


def offline() -> str | None:
    """Return the environment variable that disables network access, ZOO_OFFLINE or HF_HUB_OFFLINE, if one is set."""
    names = ("ZOO_OFFLINE", "HF_HUB_OFFLINE")
    return next((name for name in names if os.environ.get(name, "").lower() in ("1", "on", "yes", "true")), None)


def model(digest: str) -> Path | None:
    """Return the verified folder of a cached model by the SHA-256 of its manifest, or None."""
    folder = home() / "models" / digest
    try:
        verify(folder, digest)
    except (InputError, OSError):
        return None
    return folder


def store(manifest: bytes, address: Callable[[str], Address], source: str) -> Path:
    """Download the files of a manifest to the cache, unless they are cached, and return the verified folder."""
    digest = hashlib.sha256(manifest).hexdigest()
    try:
        if (cached := model(digest)) is not None:
            return cached
        with lock(digest):
            return model(digest) or _fetch(digest, manifest, address, source)
    except OSError as error:
        path, reason = error.filename or home(), error.strerror or error
        message = f"cannot write to the cache ({path}): {reason}; free some space, or set ZOO_HOME to another folder"
        raise InputError(message, code="failed") from error


def _fetch(digest: str, manifest: bytes, address: Callable[[str], Address], source: str) -> Path:
    """Download the files of a manifest to a temporary folder, resuming partial downloads, and move it to the cache."""
    from rich.console import Console
    from rich.progress import Progress

    part, target = home() / "partial" / digest, home() / "models" / digest
    part.mkdir(parents=True, exist_ok=True)
    write_bytes(part / "manifest.json", manifest)
    files = read_manifest(part)["files"]
    total = sum(record["size"] for record in files.values())
    say(f"downloading {source}, {total:,} bytes")
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("downloading", total=total)
        for name, record in files.items():
            _fetch_file(part / name, record, address(name), lambda count: bar.advance(task, count))
    for path in part.iterdir():
        if path.name not in {*files, "manifest.json"}:  # a temporary file of a process that was killed
            path.unlink()
    verify(part, digest)
    target.parent.mkdir(exist_ok=True)
    if target.exists():  # damaged
        shutil.rmtree(target)
    part.rename(target)
    return target


def _fetch_file(path: Path, record: dict[str, Any], address: Address, advance: Callable[[int], None]) -> None:
    """Download one file unless it is complete; start again once if its checksum differs."""
    for _ in range(2):
        if path.is_file() and file_record(path) == record:
            return
        with path.open("ab") as file:
            download(address, file, record["size"], advance)
        if file_record(path) != record:
            path.unlink()
    if not path.exists():
        raise InputError(f"{address}: the checksum differs from the manifest: not used", code="corrupt")


def lock(name: str) -> FileLock:
    """Return the lock of a name; the operating system releases it when the process ends."""
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / name)


def say(text: str) -> None:
    """Write a note to standard error."""
    sys.stderr.write(f"zoo: {text}\n")


def note(kind: str, key: str) -> Path:
    """Return the cache file that stores a note on a source."""
    return home() / kind / hashlib.sha256(key.encode()).hexdigest()


def remember(path: Path, data: bytes) -> None:
    """Write a note to the cache, if it can be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
