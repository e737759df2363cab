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

from zoo.cli.models import locate
from zoo.errors import InputError, check_rules

PACKAGES = {"starlette": "starlette", "uvicorn": "uvicorn", "python_multipart": "python-multipart"}


def serve(run: str, *, port: int = 7860, host: str = "127.0.0.1", device: str = "auto") -> None:
    """Serve a trained model as a web page with a JSON interface, until Ctrl-C: zoo serve vit-digits-quaternion.

    Args:
        run: A run (runs/NAME), a model folder, a name of zoo list checkpoints, owner/name@revision or https://HOST/FOLDER.
        port: Port; 0 selects a free one.
        host: Address to listen at; the default is reachable only from this computer.
        device: Device: auto, cpu, cuda, cuda:1 or mps.
    """
    if missing := [name for module, name in PACKAGES.items() if not find_spec(module)]:
        raise InputError(f"zoo serve needs {', '.join(missing)}: pip install 'hypercomplex-zoo[serve]'", code="dependency")
    path, listener = locate(run), listen(host, port)
    with listener:
        import uvicorn

        from zoo.inference.model import load
        from zoo.nn import keep_matrices
        from zoo_serving.application import application

        class Server(uvicorn.Server):
            """Shut down silently at the first Ctrl-C, and immediately at the second."""

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                self.force_exit, self.should_exit = self.should_exit, True
                logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # no tracebacks of cancelled requests

        model = load(path, device=device)
        app = application(model, Path(run).name, host_names(listener, host))
        options: dict[str, Any] = {"log_level": "warning", "limit_concurrency": 64, "timeout_graceful_shutdown": 2}
        print(f"{run} is at {address(listener)}\nCtrl-C ends it", flush=True)
        with keep_matrices(model.net):
            Server(uvicorn.Config(app, ws="none", lifespan="off", server_header=False, **options)).run([listener])
    sys.stdout.flush()
    os._exit(0)  # Python would wait for threads that still process cancelled requests


def listen(host: str, port: int) -> socket.socket:
    """Open a socket; `InputError` if the address is invalid or in use."""
    check_rules((0 <= port < 2**16, f"--port {port}: use a whole number from 0 to 65535"))
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port {port} of {host} is in use: choose another, such as --port {port + 1}", code="busy"
            ) from error
        denied = error.errno in (errno.EACCES, errno.EPERM)
        advice = "choose a port above 1023" if denied else "use --host 127.0.0.1 or an address of this computer"
        reason = str(error.strerror or error).partition(" (")[0]
        raise InputError(f"cannot listen at {host}:{port} ({reason}): {advice}", code="failed") from error


def host_names(listener: socket.socket, host: str) -> list[str]:
    """Return the accepted host names: any, unless only this computer can reach the server."""
    if not ip_address(listener.getsockname()[0]).is_loopback:
        return ["*"]
    return ["127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host]


def address(listener: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    return f"http://{name}:{port}"
