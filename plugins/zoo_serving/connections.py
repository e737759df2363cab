"""Limits on connections: slow clients are disconnected, and no address can lock out the others."""

import asyncio
from collections import Counter
from typing import Any, ClassVar

import h11
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""Seconds that a client has to send the headers of a request."""
BODY_SECONDS = 60.0
"""Seconds that a client has to send the body of a request."""
PER_ADDRESS = 16
"""Connections of one address whose request has not arrived completely."""
IN_TOTAL = 64
"""Connections of all addresses whose request has not arrived completely."""
REQUESTS_PER_ADDRESS = 32
"""Requests of one address that are answered at the same time."""
TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class LimitedProtocol(H11Protocol):
    """An HTTP connection with a deadline for the headers and the body of each request.

    Attributes:
        seconds: The deadline of each part of a request, by the state of h11.
        incomplete: The address of each connection of the server whose request has not arrived completely, the oldest first.
    """

    seconds: ClassVar[dict[Any, float]] = {}
    incomplete: ClassVar[dict["LimitedProtocol", str]] = {}
    state: Any = None
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the headers."""
        super().connection_made(transport)
        self.watch()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self.watch()

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        super().on_response_complete()
        self.watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.stop_watching()
        super().connection_lost(exc)

    def watch(self) -> None:
        """Start the deadline of the headers or the body when that part begins; stop it once the request is complete."""
        if (state := self.conn.their_state) is self.state:
            return
        self.stop_watching()
        self.state = state
        if state in self.seconds and not self.transport.is_closing():
            self.incomplete[self] = self.client[0] if self.client else ""
            self.timer = self.loop.call_later(self.seconds[state], self.expire)
            self.close_oldest()

    def stop_watching(self) -> None:
        """Stop the deadline."""
        self.incomplete.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def expire(self) -> None:
        """Close the connection, unless the server has stopped reading from it."""
        if self.flow.read_paused:
            self.timer = self.loop.call_later(self.seconds[self.state], self.expire)
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(TIMEOUT)
        self.transport.close()

    def close_oldest(self) -> None:
        """If too many requests are incomplete, close the oldest connection of the address with the most."""
        address, count = Counter(self.incomplete.values()).most_common(1)[0]
        if len(self.incomplete) > IN_TOTAL or count > PER_ADDRESS:
            oldest = next(connection for connection, owner in self.incomplete.items() if owner == address)
            oldest.stop_watching()
            oldest.transport.abort()


def limited_protocol(header_seconds: float = HEADER_SECONDS, body_seconds: float = BODY_SECONDS) -> type[H11Protocol]:
    """Return a uvicorn protocol that limits the connections of one server.

    A connection whose request has not arrived by its deadline is closed. If too many requests are incomplete, the oldest
    connection of the address with the most is closed, so a client that sends its request at once is served beside any number
    of slow ones.

    Args:
        header_seconds: Deadline for the headers, from the start of the connection or the end of the last response.
        body_seconds: Deadline for the body, from the end of the headers.
    """

    class ServerProtocol(LimitedProtocol):
        seconds = {h11.IDLE: header_seconds, h11.SEND_BODY: body_seconds}  # noqa: RUF012
        incomplete = {}  # noqa: RUF012

    return ServerProtocol


class LimitedRequests:
    """ASGI middleware that limits the requests of one address that are answered at the same time.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.requests: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it with status 429."""
        address = (scope.get("client") or [""])[0]
        if self.requests[address] >= REQUESTS_PER_ADDRESS:
            text = f"more than {REQUESTS_PER_ADDRESS} requests from one address: wait for an answer"
            await JSONResponse({"error": text}, 429)(scope, receive, send)
            return
        self.requests[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.requests[address] -= 1
            self.requests += Counter()  # forgets addresses without requests
