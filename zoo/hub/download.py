"""Fetch files over HTTP: short time-outs, a few attempts, and a partial download goes on where it ended."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from zoo.errors import InputError, one_line, printable

T = TypeVar("T")

TIMEOUT = 10.0
"""Seconds without a byte after which a connection is given up; an answer has to begin within three times as many."""
ATTEMPTS = 4
PAUSE = 0.5
"""Seconds before the second attempt; every further pause is twice as long."""
PATIENCE = 20.0
SLOWEST = 1000
"""Bytes per second below which a connection is given up, measured over `PATIENCE` seconds."""
CHUNK = 2**16
BUSY = (408, 425, 429, 500, 502, 503, 504)
"""Status codes of servers that may answer later."""


class UnreachableError(InputError):
    """A server cannot be reached or does not answer as it should; a copy from an earlier time may do."""


class AttemptError(Exception):
    """One attempt failed, and another may not.

    Args:
        reason: What went wrong.
        pause: Seconds that the server asks to wait.
        restart: Whether what came until now is of another file.
    """

    def __init__(self, reason: str, pause: float = 0.0, restart: bool = False) -> None:
        super().__init__(reason)
        self.pause, self.restart = pause, restart


class Address(NamedTuple):
    """A URL, and the headers that go to its server and are not sent on when it redirects."""

    url: str
    secret: Mapping[str, str] = {}

    def __str__(self) -> str:
        return printable(self.url)


class _Redirects(HTTPRedirectHandler):
    """Follow redirects as urllib does, but never from https to anything else."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        schemes = ("https",) if req.type == "https" else ("https", "http")
        if urlsplit(newurl).scheme not in schemes:
            raise HTTPError(req.full_url, code, f"it redirects to {printable(newurl)[:100]}", headers, fp)
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:  # the same server, of a renamed repository
            made.unredirected_hdrs.update(req.unredirected_hdrs)
        return made

    def http_error_302(self, req: Request, fp: Any, code: int, msg: str, headers: Any) -> HTTPResponse | None:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except Exception:
            fp.close()  # which urllib leaves open if the new address cannot be read
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def read(address: Address, most: int, attempts: int | None = None) -> tuple[bytes, Mapping[str, str]]:
    """Return a document of at most so many bytes, and the headers that came with it.

    Raises:
        InputError: If there is none, or it is larger.
    """

    def work() -> tuple[bytes, Mapping[str, str]]:
        data = bytearray()
        with closing(answer(address, {})) as response:
            expected = response.length
            for chunk in received(response):
                data += chunk
                if len(data) > most:
                    raise InputError(f"{address} has more than {most:,} bytes: too many for a description")
        if expected is not None and len(data) < expected:
            raise AttemptError(f"the connection ended after {len(data):,} of {expected:,} bytes")
        return bytes(data), dict(response.headers)

    return persistent(address, work, lambda: 0, attempts)


def download(address: Address, part: Path, size: int, advance: Callable[[int], None]) -> None:
    """Fetch a file of a known size; what is there of it already is not fetched again if the server can go on.

    Args:
        address: The file.
        part: Where its bytes go; left there if this fails.
        size: Its bytes.
        advance: Told of bytes as they come; of a negative number if the file begins anew.

    Raises:
        InputError: If there is no such file, it is larger, or the server fails again and again.
    """
    if part.exists() and part.stat().st_size > size:
        part.unlink()
    advance(present(part))

    def work() -> None:
        try:
            transfer(address, part, size, advance)
        except AttemptError as error:
            if error.restart:
                advance(-present(part))
                part.unlink(missing_ok=True)
            raise

    persistent(address, work, lambda: present(part))


def present(path: Path) -> int:
    """Count the bytes of a file that may not be there."""
    return path.stat().st_size if path.exists() else 0


def transfer(address: Address, part: Path, size: int, advance: Callable[[int], None]) -> None:
    """Make one attempt to fetch the rest of a file."""
    start, note = present(part), part.with_name(f"{part.name}.etag")
    if start == size and part.exists():
        return
    known = note.read_text(encoding="utf-8") if note.is_file() else ""
    headers = {"Range": f"bytes={start}-"} if start and known else {}
    with closing(answer(address, headers | ({"If-Range": known} if headers else {}))) as response:
        tag = response.headers.get("ETag", "")
        whole = response.status != 206
        if not whole and (tag != known or not response.headers.get("Content-Range", "").startswith(f"bytes {start}-")):
            raise AttemptError("the server goes on with another file", restart=True)
        if whole and start:
            advance(-start)
            start = 0
        if not tag.startswith("W/") and tag.isprintable():  # a weak one does not promise the same bytes
            note.write_text(tag, encoding="utf-8")
        with part.open("wb" if whole else "ab") as file:
            for chunk in received(response):
                start += len(chunk)
                if start > size:
                    raise InputError(f"{address} has more than the {size:,} bytes that the manifest says: not used")
                file.write(chunk)
                advance(len(chunk))
    if start < size:
        raise AttemptError(f"the connection ended after {start:,} of {size:,} bytes")


def persistent(address: Address, work: Callable[[], T], done: Callable[[], int], attempts: int | None = None) -> T:
    """Do some work on a server until it succeeds; give up after some attempts in a row that bring less than a mebibyte."""
    failures, most = 0, attempts or ATTEMPTS
    while True:
        before = done()
        try:
            return work()
        except AttemptError as error:
            failures = 1 if done() - before > 2**20 else failures + 1
            if failures >= most or error.pause > TIMEOUT:
                wait = f", asks to wait {error.pause:.0f} s" if error.pause > TIMEOUT else ""
                times = f" ({failures} attempts)" if failures > 1 else ""
                raise UnreachableError(f"cannot fetch {address}: {error}{wait}{times}") from error
            time.sleep(max(error.pause, PAUSE * 2 ** (failures - 1)))


def received(response: HTTPResponse) -> Iterator[bytes]:
    """Yield what a server sends, as long as it sends at all fast."""
    begin, count = time.monotonic(), 0
    while True:
        try:
            chunk = response.read1(CHUNK)
        except (OSError, HTTPException, ValueError) as error:
            raise AttemptError(one_line(error, 100)) from error
        if not chunk:
            return
        yield chunk
        count += len(chunk)
        if (seconds := time.monotonic() - begin) > PATIENCE:
            if count < SLOWEST * seconds:
                raise AttemptError(f"{count / seconds:.0f} bytes per second")
            begin, count = time.monotonic(), 0


def answer(address: Address, headers: Mapping[str, str]) -> HTTPResponse:
    """Ask for a URL and return what its server answers; the answer's headers have to be there within a time of their own."""
    if urlsplit(address.url).scheme not in ("http", "https") or not urlsplit(address.url).hostname:
        raise InputError(f"{address} is no address of a web server: https://HOST/FOLDER")
    request = Request(address.url, headers={"User-Agent": "hypercomplex-zoo", **headers})
    for name, value in address.secret.items():
        request.add_unredirected_header(name, value)
    outcome: SimpleQueue[Any] = SimpleQueue()
    too_late = Event()

    def ask() -> None:
        found: Any
        try:
            found = build_opener(_Redirects).open(request, timeout=TIMEOUT)
        except Exception as error:
            found = error
        outcome.put(found)
        if too_late.is_set() and hasattr(found, "close"):
            found.close()

    # urllib's time-out begins anew with every byte of the headers, so that a server could go on for ever.
    Thread(target=ask, daemon=True).start()
    try:
        found = outcome.get(timeout=3 * TIMEOUT)
    except Empty:
        too_late.set()
        raise AttemptError(f"no answer within {3 * TIMEOUT:g} s") from None
    if isinstance(found, HTTPError):
        found.close()
        raise refusal(address, found) from found
    if isinstance(found, OSError | HTTPException | ValueError):
        reason = found.reason if isinstance(found, URLError) and isinstance(found.reason, Exception) else found
        raise AttemptError(one_line(reason, 100)) from found
    if isinstance(found, Exception):
        raise found
    response: HTTPResponse = found
    return response


def refusal(address: Address, error: HTTPError) -> Exception:
    """Return what an answer with an error means: another attempt, or that there is no such thing."""
    if error.code in BUSY:
        pause = error.headers.get("Retry-After", "")
        return AttemptError(f"{error.code} {printable(error.reason)[:100]}", float(pause) if pause.isdigit() else 0.0)
    if error.code == 416:
        return AttemptError("416 the server has fewer bytes", restart=True)
    if 300 <= error.code < 400:
        return InputError(f"cannot fetch {address}: {one_line(error, 200)}")
    why = printable(error.headers.get("X-Error-Message") or str(error.reason))[:200]
    advice = {401: ": is the name right, and may you read it?", 404: ": is the name right?"}.get(error.code, "")
    return InputError(f"cannot fetch {address}: {error.code} {why}{advice}")
