"""Download over HTTP with httpx2: limited sizes, retries, and partial downloads that resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Timer
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from zoo.errors import InputError, one_line, printable

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

TIMEOUT = 10.0
"""Seconds without a byte after which an attempt fails; the headers must be complete within three times as many."""
ATTEMPTS = 4
PAUSE = 0.5
"""Seconds before the second attempt; every further pause is twice as long."""
PATIENCE = 20.0
SLOWEST = 1000
"""Bytes per second below which an attempt fails, measured over `PATIENCE` seconds."""
BUSY = (408, 425, 429, 500, 502, 503, 504)
"""Status codes of servers that may answer later."""


class UnreachableError(InputError):
    """A server cannot be reached or keeps failing; a cached copy may do instead."""


class AttemptError(Exception):
    """One attempt failed, and another may succeed.

    Args:
        reason: What went wrong.
        pause: Seconds that the server asks to wait.
        restart: Whether the partial download is of another file.
    """

    def __init__(self, reason: str, pause: float = 0.0, restart: bool = False) -> None:
        super().__init__(reason)
        self.pause, self.restart = pause, restart


class Address(NamedTuple):
    """A URL and the headers for its server, which redirects to other servers do not receive."""

    url: str
    headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        return printable(self.url)


def download_document(address: Address, most: int, attempts: int = ATTEMPTS) -> tuple[bytes, Mapping[str, str]]:
    """Download a document of at most `most` bytes; return it with the headers of the response."""

    def attempt() -> tuple[bytes, Mapping[str, str]]:
        data = bytearray()
        with response_of(address) as response:
            for chunk in chunks_of(response):
                data += chunk
                if len(data) > most:
                    raise InputError(f"{address} has more than {most:,} bytes, the limit of JSON files", code="data")
            return bytes(data), response.headers

    return retried(address, attempt, lambda: 0, attempts)


def download(address: Address, part: Path, size: int, advance: Callable[[int], None]) -> None:
    """Download a file of a known size, resuming a partial download if the server supports it.

    Args:
        address: The file.
        part: The partial download; kept on failure.
        size: Bytes of the file.
        advance: Called with the number of new bytes; negative if the download restarts.
    """
    if present(part) > size:
        part.unlink()
    advance(present(part))

    def attempt() -> None:
        try:
            _resume(address, part, size, advance)
        except AttemptError as error:
            if error.restart:
                advance(-present(part))
                part.unlink(missing_ok=True)
            raise

    retried(address, attempt, lambda: present(part))


def present(path: Path) -> int:
    """Return the size of a file, 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def _resume(address: Address, part: Path, size: int, advance: Callable[[int], None]) -> None:
    """Make one attempt to download the rest of a file."""
    start, note = present(part), part.with_name(f"{part.name}.etag")
    if start == size and part.exists():
        return
    known = note.read_text(encoding="utf-8") if note.is_file() else ""
    with response_of(address, {"Range": f"bytes={start}-", "If-Range": known} if start and known else {}) as response:
        tag, is_rest = response.headers.get("ETag", ""), response.status_code == 206
        if is_rest and (tag != known or not response.headers.get("Content-Range", "").startswith(f"bytes {start}-")):
            raise AttemptError("the file on the server has changed", restart=True)
        if not is_rest and start:
            advance(-start)
            start = 0
        if not tag.startswith("W/") and tag.isprintable():  # a weak tag does not promise the same bytes
            note.write_text(tag, encoding="utf-8")
        with part.open("ab" if is_rest else "wb") as file:
            for chunk in chunks_of(response):
                start += len(chunk)
                if start > size:
                    raise InputError(f"{address} has more than the {size:,} bytes of its manifest: not used", code="corrupt")
                file.write(chunk)
                advance(len(chunk))
    if start < size:
        raise AttemptError(f"the connection ended after {start:,} of {size:,} bytes")


def retried(address: Address, attempt: Callable[[], T], done: Callable[[], int], attempts: int = ATTEMPTS) -> T:
    """Call `attempt` until it succeeds; give up after `attempts` consecutive failures with less than a mebibyte each."""
    failures = 0
    while True:
        before = done()
        try:
            return attempt()
        except AttemptError as error:
            failures = 1 if done() - before > 2**20 else failures + 1
            if failures >= attempts or error.pause > TIMEOUT:
                wait = f", asks to wait {error.pause:.0f} s" if error.pause > TIMEOUT else ""
                times = f" ({failures} attempts)" if failures > 1 else ""
                raise UnreachableError(f"cannot download {address}: {error}{wait}{times}", code="failed") from error
            time.sleep(max(error.pause, PAUSE * 2 ** (failures - 1)))


@contextmanager
def response_of(address: Address, headers: Mapping[str, str] | None = None) -> Iterator[httpx2.Response]:
    """Send a GET request and yield the response once its headers are complete; the body is not read yet."""
    import httpx2

    sent = {"User-Agent": "hypercomplex-zoo", "Accept-Encoding": "identity", **address.headers, **(headers or {})}
    hooks: dict[str, list[Any]] = {"response": [_check_redirect]}
    with httpx2.Client(follow_redirects=True, timeout=TIMEOUT, verify=_certificates(), event_hooks=hooks) as client:
        expired = Event()

        def expire() -> None:
            expired.set()
            client.close()

        late = Timer(3 * TIMEOUT, expire)  # the client's own timeout restarts with each byte
        late.start()
        try:
            with client.stream("GET", address.url, headers=sent) as response:
                late.cancel()
                _check_status(address, response)
                yield response
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError) as error:
            raise InputError(f"{address} is not the address of a web server: use https://HOST/FOLDER") from error
        except httpx2.TooManyRedirects as error:
            raise InputError(f"cannot download {address}: it redirects too often", code="failed") from error
        except httpx2.HTTPError as error:
            raise AttemptError(f"no answer within {3 * TIMEOUT:g} s" if expired.is_set() else one_line(error, 100)) from error
        finally:
            late.cancel()


@cache
def _certificates() -> Any:
    import httpx2

    return httpx2.create_ssl_context()


def _check_redirect(response: httpx2.Response) -> None:
    """Refuse redirects from https to anything else, and to anything but a web server."""
    if response.has_redirect_location:
        target = response.request.url.join(response.headers["location"])
        if target.scheme not in (("https",) if response.request.url.scheme == "https" else ("https", "http")):
            where = printable(str(target))[:100]
            message = f"cannot download {printable(str(response.request.url))}: it redirects to {where}"
            raise InputError(message, code="untrusted")


def _check_status(address: Address, response: httpx2.Response) -> None:
    """Raise the error that a status code stands for: `AttemptError` where another attempt may succeed."""
    code, phrase = response.status_code, printable(response.reason_phrase)[:100]
    if code in (200, 206):
        return
    if code in BUSY:
        pause = response.headers.get("Retry-After", "")
        raise AttemptError(f"{code} {phrase}", float(pause) if pause.isdigit() else 0.0)
    if code == 416:
        raise AttemptError("416 the server has fewer bytes", restart=True)
    reason = printable(response.headers.get("X-Error-Message") or phrase)[:200]
    advice = {401: ": is the name right, and may you read it?", 404: ": is the name right?"}.get(code, "")
    raise InputError(f"cannot download {address}: {code} {reason}{advice}", code="missing" if code == 404 else "failed")


def chunks_of(response: httpx2.Response) -> Iterator[bytes]:
    """Yield the body as it arrives; raise `AttemptError` if it arrives too slowly."""
    begin, count = time.monotonic(), 0
    for chunk in response.iter_raw():
        yield chunk
        count += len(chunk)
        if (seconds := time.monotonic() - begin) > PATIENCE:
            if count < SLOWEST * seconds:
                raise AttemptError(f"{count / seconds:.0f} bytes per second")
            begin, count = time.monotonic(), 0
