"""The cache of pulled models, under ZOO_HOME: several processes share it, and a model in it is whole or not there."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from zoo.checkpoint.atomic import new_folder, write_bytes
from zoo.checkpoint.manifest import file_record, read_manifest, verify
from zoo.errors import InputError, one_line
from zoo.hub.download import Address, download, present
from zoo.registry.home import home


def offline() -> str | None:
    """Return the environment variable that forbids the network, if one does: ZOO_OFFLINE or HF_HUB_OFFLINE."""
    names = ("ZOO_OFFLINE", "HF_HUB_OFFLINE")
    return next((name for name in names if os.environ.get(name, "").lower() in ("1", "on", "yes", "true")), None)


def model(digest: str) -> Path | None:
    """Return the folder of a pulled model by the SHA-256 of its manifest, every file checked; None if there is none."""
    folder = home() / "models" / digest
    try:
        verify(folder, digest)
    except (InputError, OSError):
        return None
    return folder


def keep(manifest: bytes, address: Callable[[str], Address], where: str) -> Path:
    """Fetch the files of a manifest and put them into the cache, unless they are there.

    Args:
        manifest: The bytes of manifest.json.
        address: Where a file is, by its name.
        where: The source, for messages.

    Returns:
        The folder, every file checked.

    Raises:
        InputError: If the manifest asks for what no model folder has, or a file cannot be fetched, is another, or not written.
    """
    digest = hashlib.sha256(manifest).hexdigest()
    try:
        if (found := model(digest)) is not None:
            return found
        with locked(digest):
            return model(digest) or fetch(digest, manifest, address, where)
    except OSError as error:
        place = error.filename or home()
        text = f"cannot write to the cache ({place}): {error.strerror or error}; make room, or let ZOO_HOME name another folder"
        raise InputError(text) from error


def fetch(digest: str, manifest: bytes, address: Callable[[str], Address], where: str) -> Path:
    """Fetch the files of a manifest into a folder of their own, where what is there of them goes on, and then publish it."""
    part, target = home() / "partial" / digest, home() / "models" / digest
    part.mkdir(parents=True, exist_ok=True)
    write_bytes(part / "manifest.json", manifest)
    files = read_manifest(part)["files"]
    total = sum(record["size"] for record in files.values())
    there = sum(present(part / f"{name}{ending}") for name in files for ending in ("", ".part"))
    if total - there > (free := shutil.disk_usage(part).free):
        raise InputError(
            f"{where} has {total:,} bytes, and the disk of {home()} has room for {free:,}: let ZOO_HOME name another"
        )
    with progress(where, total) as advance:
        for name, record in files.items():
            fetch_file(part / name, record, address(name), advance)
    for stale in target.parent.glob(f".{digest}-*"):  # of a process that was killed while it held the lock
        shutil.rmtree(stale, ignore_errors=True)
    with new_folder(target) as folder:
        for name in ("manifest.json", *files):
            (part / name).rename(folder / name)
        verify(folder, digest)
    shutil.rmtree(part, ignore_errors=True)
    return target


def fetch_file(path: Path, record: dict[str, Any], address: Address, advance: Callable[[int], None]) -> None:
    """Fetch one file unless it is there; one that came whole and is wrong is fetched once more."""
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
            raise InputError(f"{address} is not the file that its manifest names (its checksum differs): not used")


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time work on a name; the operating system releases the lock when the process ends."""
    folder = home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / name)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say("another process downloads the same files: waiting for it")
        lock.acquire()
    except (NotImplementedError, OSError):  # some network file systems have no locks; checksums detect mixed-up files
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
    """Show bytes and speed on a terminal, one line elsewhere; yields a function to be told of bytes as they come."""
    if not sys.stderr.isatty():
        say(f"fetching {title}, {total:,} bytes")
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title.replace("[", r"\["), total=total)
        yield lambda count: bar.advance(task, count)


def note(kind: str, key: str) -> Path:
    """Return the file of the cache that remembers something of a source."""
    return home() / kind / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def remember(path: Path, data: bytes) -> None:
    """Write a note to the cache; one that cannot be written is left out."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as error:
        say(f"cannot write to the cache: {one_line(error)}")
