"""Download over HTTP with httpx2: limited sizes, retries, and partial downloads that resume."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

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


class Address(NamedTuple):
    """A URL and the headers for its server, which redirects to other servers do not receive."""

    url: str
    headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        return self.url


def download(
    address: Address,
    file: BinaryIO,
    limit: int,
    advance: Callable[[int], None] = lambda count: None,
    attempts: int = ATTEMPTS,
) -> Mapping[str, str]:
    """Append the rest of a document to a file that may contain its beginning; return the headers of the response.

    Args:
        address: The document.
        file: The file, open for appending.
        limit: The largest size of the file in bytes.
        advance: Called with the number of new bytes.
        attempts: Number of attempts if the server is busy or the connection fails.

    Raises:
        UnreachableError: If all attempts fail.
        InputError: If the server refuses the request, or the document is larger than the limit.
    """
    import httpx2

    for attempt in range(attempts):
        try:
            return _attempt(address, file, limit, advance)
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError) as error:
            raise InputError(f"{address} is not the address of a web server: use https://HOST/FOLDER") from error
        except httpx2.TooManyRedirects as error:
            raise InputError(f"cannot download {address}: it redirects too often", code="failed") from error
        except httpx2.HTTPError as error:
            failure = error
        if attempt + 1 < attempts:
            time.sleep(PAUSE * 2**attempt)
    raise UnreachableError(f"cannot download {address}: {one_line(failure, 100)} ({attempts} attempts)", code="failed")


def _attempt(address: Address, file: BinaryIO, limit: int, advance: Callable[[int], None]) -> Mapping[str, str]:
    """Send one request for the rest of a document; raise ``httpx2.HTTPError`` if another attempt may succeed."""
    import httpx2

    size = file.seek(0, os.SEEK_END)
    headers = {"User-Agent": "hypercomplex-zoo", "Accept-Encoding": "identity", **address.headers}
    if size:
        headers["Range"] = f"bytes={size}-"
    with (
        httpx2.Client(follow_redirects=True, timeout=TIMEOUT) as client,
        client.stream("GET", address.url, headers=headers) as response,
    ):
        _check(address, response)
        if response.status_code != 206:  # the whole document
            size = file.seek(0)
            file.truncate()
        if response.status_code == 416:
            raise httpx2.HTTPStatusError("416 the server has fewer bytes", request=response.request, response=response)
        for chunk in response.iter_raw():
            size += len(chunk)
            if size > limit:
                raise InputError(f"{address} has more than {limit:,} bytes: not used", code="corrupt")
            file.write(chunk)
            advance(len(chunk))
        return response.headers


def _check(address: Address, response: httpx2.Response) -> None:
    """Raise the error of a status code, or of a redirect from https to http."""
    import httpx2

    path = [str(step.url) for step in (*response.history, response)]
    if address.url.startswith("https:") and not all(url.startswith("https:") for url in path):
        raise InputError(f"cannot download {address}: it redirects to {path[-1][:100]}", code="untrusted")
    code, phrase = response.status_code, response.reason_phrase[:100]
    if code in BUSY:
        raise httpx2.HTTPStatusError(f"{code} {phrase}", request=response.request, response=response)
    if code in (200, 206, 416):
        return
    reason = response.headers.get("X-Error-Message", phrase)[:200]
    advice = {401: ": is the name right, and may you read it?", 404: ": is the name right?"}.get(code, "")
    raise InputError(f"cannot download {address}: {code} {reason}{advice}", code="missing" if code == 404 else "failed")
