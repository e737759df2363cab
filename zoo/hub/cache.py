"""Download models over HTTP, with retries and partial downloads that resume, to a cache under ZOO_HOME that processes share."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock

from zoo.atomic import home, write_bytes
from zoo.checkpoint.manifest import is_intact, read_manifest, verify
from zoo.errors import InputError, one_line

if TYPE_CHECKING:
    import httpx2

TIMEOUT = 10.0
"""Seconds without a byte after which an attempt fails."""
ATTEMPTS = 4
PAUSE = 0.5
"""Seconds before the second attempt; every further pause is twice as long."""
BUSY = (408, 425, 429, 500, 502, 503, 504)
"""Status codes of servers that may answer later."""


class UnreachableError(InputError):
    """A server cannot be reached or keeps failing; a cached copy may do instead."""


def download(
    url: str,
    file: BinaryIO,
    limit: int,
    advance: Callable[[int], None] = lambda count: None,
    attempts: int = ATTEMPTS,
) -> None:
    """Append the rest of a document to a file that may contain its beginning.

    Raises:
        UnreachableError: If all attempts fail because the server is busy or the connection is lost.
        InputError: If the server refuses the request, or the document has more bytes than the limit.
    """
    import httpx2

    for attempt in range(attempts):
        try:
            _attempt(url, file, limit, advance)
            return
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError) as error:
            raise InputError(f"{url} is not the address of a web server: use https://HOST/FOLDER") from error
        except httpx2.HTTPError as error:
            failure = error
        if attempt + 1 < attempts:
            time.sleep(PAUSE * 2**attempt)
    raise UnreachableError(f"cannot download {url}: {one_line(failure, 100)} ({attempts} attempts)", code="failed")


def _attempt(url: str, file: BinaryIO, limit: int, advance: Callable[[int], None]) -> None:
    """Send one request for the rest of a document; raise ``httpx2.HTTPError`` if another attempt may succeed."""
    import httpx2

    size = file.seek(0, os.SEEK_END)
    headers = {"User-Agent": "hypercomplex-zoo", "Accept-Encoding": "identity"}
    if size:
        headers["Range"] = f"bytes={size}-"
    with (
        httpx2.Client(follow_redirects=True, timeout=TIMEOUT) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        _check(url, response)
        if response.status_code != 206:  # the whole document
            size = file.seek(0)
            file.truncate()
        if response.status_code == 416:
            raise httpx2.HTTPStatusError("416 the server has fewer bytes", request=response.request, response=response)
        for chunk in response.iter_raw():
            size += len(chunk)
            if size > limit:
                raise InputError(f"{url} has more than {limit:,} bytes: not used", code="corrupt")
            file.write(chunk)
            advance(len(chunk))


def _check(url: str, response: httpx2.Response) -> None:
    """Raise the error of a status code, or of a redirect from https to http."""
    import httpx2

    path = [str(step.url) for step in (*response.history, response)]
    if url.startswith("https:") and not all(step.startswith("https:") for step in path):
        raise InputError(f"cannot download {url}: it redirects to {path[-1][:100]}", code="untrusted")
    code, phrase = response.status_code, response.reason_phrase[:100]
    if code in BUSY:
        raise httpx2.HTTPStatusError(f"{code} {phrase}", request=response.request, response=response)
    if code in (200, 206, 416):
        return
    reason = response.headers.get("X-Error-Message", phrase)[:200]
    advice = "; check the name" if code == 404 else ""
    raise InputError(f"cannot download {url}: {code} {reason}{advice}", code="missing" if code == 404 else "failed")


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


def store(manifest: bytes, address: Callable[[str], str], source: str) -> Path:
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


def _fetch(digest: str, manifest: bytes, address: Callable[[str], str], source: str) -> Path:
    """Download the files of a manifest to a temporary folder, resuming partial downloads, and move it to the cache."""
    from rich.console import Console
    from rich.progress import Progress

    part, target = home() / "partial" / digest, home() / "models" / digest
    part.mkdir(parents=True, exist_ok=True)
    write_bytes(part / "manifest.json", manifest)
    files = read_manifest(part)["files"]
    total = sum(record["size"] for record in files.values())
    free = shutil.disk_usage(part).free + sum(path.stat().st_size for path in part.iterdir())
    if total > free:
        text = f"{source} has {total:,} bytes, but {home()} has {free:,} left: free some space, or set ZOO_HOME"
        raise InputError(text, code="failed")
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


def _fetch_file(path: Path, record: dict[str, Any], url: str, advance: Callable[[int], None]) -> None:
    """Download one file unless it is complete; start again once if its checksum differs."""
    for _ in range(2):
        if is_intact(path, record):
            return
        with path.open("ab") as file:
            download(url, file, record["size"], advance)
        if not is_intact(path, record):
            path.unlink()
    if not path.exists():
        raise InputError(f"{url}: the checksum differs from the manifest: not used", code="corrupt")


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
