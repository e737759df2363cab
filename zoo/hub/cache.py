"""Cache of downloaded models under ZOO_HOME, shared by processes; a cached model is always complete."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from zoo.atomic import new_folder, write_bytes
from zoo.checkpoint.manifest import file_record, read_manifest, verify
from zoo.errors import InputError, one_line
from zoo.hub.download import Address, download, present
from zoo.registry.home import home


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
        with locked(digest):
            return model(digest) or fetch(digest, manifest, address, source)
    except OSError as error:
        path = error.filename or home()
        reason = error.strerror or error
        message = f"cannot write to the cache ({path}): {reason}; free some space, or set ZOO_HOME to another folder"
        raise InputError(message, code="failed") from error


def fetch(digest: str, manifest: bytes, address: Callable[[str], Address], source: str) -> Path:
    """Download the files of a manifest to a temporary folder, resuming partial downloads, and move it to the cache."""
    part, target = home() / "partial" / digest, home() / "models" / digest
    part.mkdir(parents=True, exist_ok=True)
    write_bytes(part / "manifest.json", manifest)
    files = read_manifest(part)["files"]
    total = sum(record["size"] for record in files.values())
    downloaded = sum(present(part / f"{name}{ending}") for name in files for ending in ("", ".part"))
    if total - downloaded > (free := shutil.disk_usage(part).free):
        message = f"{source} has {total:,} bytes, but the disk of {home()} has {free:,} free: set ZOO_HOME to another folder"
        raise InputError(message, code="failed")
    with progress(source, total) as advance:
        for name, record in files.items():
            fetch_file(part / name, record, address(name), advance)
    for stale in target.parent.glob(f".{digest}-*"):  # left by a process that was killed while it held the lock
        shutil.rmtree(stale, ignore_errors=True)
    with new_folder(target) as folder:
        for name in ("manifest.json", *files):
            (part / name).rename(folder / name)
        verify(folder, digest)
    shutil.rmtree(part, ignore_errors=True)
    return target


def fetch_file(path: Path, record: dict[str, Any], address: Address, advance: Callable[[int], None]) -> None:
    """Download one file unless it exists; retry once if its checksum differs."""
    part = path.with_name(f"{path.name}.part")
    for again in (True, False):
        if path.is_file() and file_record(path) == record:
            return
        download(address, part, record["size"], advance)
        if file_record(part) == record:
            part.rename(path)
            return
        part.unlink()
        advance(-record["size"])
        if not again:
            raise InputError(f"{address}: the checksum differs from the manifest: not used", code="corrupt")


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock of a name; the operating system releases it when the process ends."""
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / name)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say("waiting for another process that downloads the same files")
        lock.acquire()
    except (NotImplementedError, OSError):  # some network file systems lack locks; checksums detect corrupted files
        pass
    try:
        yield
    finally:
        lock.release()


def say(text: str) -> None:
    """Write a note to standard error."""
    sys.stderr.write(f"zoo: {text}\n")


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, one line elsewhere; yields a function that takes the number of new bytes."""
    if not sys.stderr.isatty():
        say(f"downloading {title}, {total:,} bytes")
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title.replace("[", r"\["), total=total)
        yield lambda count: bar.advance(task, count)


def note(kind: str, key: str) -> Path:
    """Return the cache file that stores a note on a source."""
    return home() / kind / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def remember(path: Path, data: bytes) -> None:
    """Write a note to the cache; failure only prints a message."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        say(f"cannot write to the cache: {one_line(error)}")
