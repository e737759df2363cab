"""Serve a trained model as a web page: zoo serve vit-digits-quaternion."""

import errno
import logging
import os
import socket
import sys
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Any

from zoo.cli.commands import quiet
from zoo.cli.models import RUN
from zoo.cli.parser import Parser
from zoo.errors import InputError, check_rules

PACKAGES = {"starlette": "starlette", "uvicorn": "uvicorn", "python_multipart": "python-multipart"}


def make_parser(command: str) -> Parser:
    """Return the command's parser."""
    parser = Parser(command, "Show a trained model on a web page of this computer, with a JSON interface.").positional(
        "run", RUN
    )
    parser.value("--port", "the port, 7860 by default; 0 takes a free one")
    parser.value("--host", "the address to listen at; 127.0.0.1 by default: this computer alone")
    return parser.value("--device", "where to compute: auto (the default), cpu, cuda, cuda:1 or mps")


def run(command: str, values: dict[str, Any]) -> int:
    """Serve a model until Ctrl-C."""
    if missing := [name for module, name in PACKAGES.items() if not find_spec(module)]:
        raise InputError(f"zoo serve needs {', '.join(missing)}: pip install 'hypercomplex-zoo[serve]'")
    listener = listen(values["host"] or "127.0.0.1", values["port"] or "7860")
    with listener:
        import uvicorn

        from zoo.inference.model import load
        from zoo.layers import keep_matrices
        from zoo_serving.application import application
        from zoo_serving.connections import limited_protocol

        class Server(uvicorn.Server):
            """Ends at the first Ctrl-C without another word, and at once at the second."""

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                self.force_exit, self.should_exit = self.should_exit, True
                logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # no traceback of each request that is cut off

        quiet()
        model = load(values["run"], device=values["device"] or "auto")
        app = application(model, Path(values["run"]).name, names(listener, values["host"]))
        options: dict[str, Any] = {"log_level": "warning", "limit_concurrency": 256, "timeout_graceful_shutdown": 2}
        options |= {"http": limited_protocol(), "ws": "none"}
        print(f"{values['run']} is at {address(listener)}\nCtrl-C ends it", flush=True)
        with keep_matrices(model.net):
            Server(uvicorn.Config(app, lifespan="off", server_header=False, **options)).run([listener])
    sys.stdout.flush()
    os._exit(0)  # Python would wait for threads that still compute an answer, which nobody gets


def listen(host: str, port: str) -> socket.socket:
    """Return a socket at an address, before anything is loaded.

    Raises:
        InputError: If there is no such address or it is taken.
    """
    number = int(port) if port.isascii() and port.isdigit() else -1
    check_rules((0 <= number < 2**16, f"--port {port}: use a whole number from 0 to 65535"))
    try:
        return socket.create_server((host, number), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        taken, denied = error.errno == errno.EADDRINUSE, error.errno in (errno.EACCES, errno.EPERM)
        if taken:
            raise InputError(f"port {number} of {host} is in use: choose another, such as --port {number + 1}") from error
        advice = "choose a port above 1023" if denied else "use --host 127.0.0.1 or an address of this computer"
        raise InputError(
            f"cannot listen at {host}:{number} ({str(error.strerror or error).partition(' (')[0]}): {advice}"
        ) from error


def names(listener: socket.socket, host: str | None) -> list[str]:
    """Return the names that a server answers to: any, unless only this computer can reach it."""
    alone = ip_address(listener.getsockname()[0]).is_loopback
    given = f"[{host}]" if ":" in (host or "") else host
    return ["127.0.0.1", "localhost", "[::1]", *([given] if given else [])] if alone else ["*"]


def address(listener: socket.socket) -> str:
    """Return the address of a socket for a browser."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    return f"http://{name}:{port}"
