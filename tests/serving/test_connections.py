"""Slow clients: they are disconnected, and other clients are still served."""

import contextlib
import socket
import sys
import threading
import time
from urllib.request import urlopen

import pytest

pytest.importorskip("starlette", reason="needs hypercomplex-zoo[serve]")
uvicorn = pytest.importorskip("uvicorn", reason="needs hypercomplex-zoo[serve]")
from starlette.applications import Starlette  # noqa: E402
from starlette.middleware import Middleware  # noqa: E402
from starlette.responses import PlainTextResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402
from zoo_serving.connections import REQUESTS_PER_ADDRESS, LimitedRequests, limited_protocol  # noqa: E402

HEADERS = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


async def read(request):
    return PlainTextResponse(f"{len(await request.body())} bytes")


@pytest.fixture
def serve():
    """Start a server with these deadlines and return its port."""
    with contextlib.ExitStack() as ended:

        def start(header_seconds, body_seconds):
            routes = [Route("/", read, methods=["GET", "POST"])]
            app = Starlette(routes=routes, middleware=[Middleware(LimitedRequests)])
            listener = ended.enter_context(socket.create_server(("127.0.0.1", 0)))
            http = limited_protocol(header_seconds, body_seconds)
            options = {"log_level": "critical", "lifespan": "off", "limit_concurrency": 128}
            server = uvicorn.Server(uvicorn.Config(app, http=http, ws="none", **options))
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            ended.callback(thread.join)
            ended.callback(setattr, server, "should_exit", True)
            return listener.getsockname()[1]

        yield start


def connect(port, data, source="127.0.0.1"):
    connection = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))
    connection.sendall(data)
    return connection


def is_closed(connection):
    """Whether the server has closed a connection, perhaps with an answer before."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_a_client_is_served_beside_200_slow_ones(serve, source):
    if sys.platform != "linux" and source != "127.0.0.1":
        pytest.skip("only Linux answers to all addresses of the loopback device")
    port = serve(60, 60)
    slow = HEADERS, HEADERS + b"Content-Length: 1000\r\n\r\n1"
    with contextlib.ExitStack() as closed:
        for i in range(200):
            closed.enter_context(connect(port, slow[i % 2], source))
        began = time.monotonic()
        for _ in range(20):
            with urlopen(f"http://127.0.0.1:{port}/", data=b"123", timeout=10) as answer:
                assert answer.read() == b"3 bytes"
        assert time.monotonic() - began < 10


def test_headers_and_bodies_have_a_deadline(serve):
    port = serve(0.3, 0.3)
    whole = HEADERS + b"Content-Length: 3\r\n\r\n123"
    for data, status in ((b"", b"408"), (HEADERS, b"408"), (HEADERS + b"Content-Length: 9\r\n\r\n1", b"408"), (whole, b"200")):
        with connect(port, data) as connection:
            assert connection.recv(4096)[9:12] == status
            assert is_closed(connection)  # also an idle connection after its answer
    with connect(port, whole) as connection:  # a second request has the same deadline
        answer = b""
        while not answer.endswith(b"3 bytes"):
            answer += connection.recv(4096)
        connection.sendall(HEADERS)
        assert connection.recv(4096)[9:12] == b"408"


def test_requests_of_one_address_are_limited():
    import asyncio

    async def ask(app, address):
        sent = []

        async def send(message):
            sent.append(message)

        await app({"type": "http", "client": (address, 1)}, None, send)
        return sent[0]["status"]

    async def run():
        free = asyncio.Event()

        async def answer(scope, receive, send):
            await free.wait()
            await send({"type": "http.response.start", "status": 200})

        app = LimitedRequests(answer)
        first = [asyncio.create_task(ask(app, "a")) for _ in range(REQUESTS_PER_ADDRESS)]
        await asyncio.sleep(0)
        assert await ask(app, "a") == 429
        other = asyncio.create_task(ask(app, "b"))
        await asyncio.sleep(0)
        free.set()
        assert [await task for task in (*first, other)] == [200] * (REQUESTS_PER_ADDRESS + 1)
        assert await ask(app, "a") == 200
        assert not app.requests

    asyncio.run(run())
