"""Small images, and a local hub."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
MAIN = "c" * 40
"""The commit of the branch main of every repository."""


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("no ../shared/data beside the repository")
    return SHARED


@pytest.fixture
def pixels() -> Callable[..., np.ndarray]:
    def draw(*shape: int, seed: int = 0) -> np.ndarray:
        return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)

    return draw


@pytest.fixture
def folder(tmp_path: Path, pixels: Callable[..., np.ndarray]) -> Callable[..., Path]:
    """Write `per_class` RGB images of 10 x 12 pixels for every class and split ("" for none)."""

    def write(splits: tuple[str, ...] = ("",), classes: tuple[str, ...] = ("cat", "dog"), per_class: int = 10) -> Path:
        for place, (split, name) in enumerate((split, name) for split in splits for name in classes):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(per_class):
                image = Image.fromarray(pixels(10, 12, 3, seed=1000 * place + i))
                image.save(tmp_path / split / name / f"{i}.png")
        return tmp_path

    return write


class _Request(BaseHTTPRequestHandler):
    """A request to the hub, with the part of its protocol that the libraries use to load a data set."""

    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/").split("/")
        self.server.asked.append("/".join(path))
        files = self.server.files
        if path == ["stop"]:
            self.server.close()
            self._reply(200, b"")
        elif path[:2] == ["api", "datasets"] and "/".join(path[2:4]) in files:
            self._describe("/".join(path[2:4]), path[4:])
        elif path[0] == "datasets" and path[3:4] == ["resolve"]:
            self._send("/".join(path[1:3]), "/".join(path[5:]), _commit(path[4]))
        else:
            self._reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _describe(self, repository: str, rest: list[str]) -> None:
        files = self.server.files[repository]
        if not rest or rest[0] == "revision":
            names = [{"rfilename": name} for name in files]
            commit = _commit(rest[1] if rest else "main")
            return self._reply(200, json.dumps({"id": repository, "sha": commit, "siblings": names}).encode())
        under = "".join(f"{part}/" for part in rest[2:])
        inside = [name.removeprefix(under) for name in files if name.startswith(under)]
        found = {name.split("/")[0] for name in inside if "/" in name}
        entries: list[dict[str, Any]] = [{"type": "directory", "path": under + name, "oid": "d" * 40} for name in sorted(found)]
        entries += [
            {"type": "file", "path": under + name, "size": len(files[under + name]), "oid": _digest(files[under + name])}
            for name in inside
            if "/" not in name
        ]
        return self._reply(200, json.dumps(entries).encode())

    def _send(self, repository: str, name: str, commit: str) -> None:
        content = self.server.files.get(repository, {}).get(name)
        if content is None:
            return self._reply(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        if self.command == "GET":
            self.server.sent.append(f"{repository}/{name}")
        return self._reply(200, content, {"ETag": f'"{_digest(content)}"', "X-Repo-Commit": commit})

    def _reply(self, code: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _commit(revision: str) -> str:
    return MAIN if revision == "main" else revision


def _digest(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


class Hub(ThreadingHTTPServer):
    """A local hub that runs until `close` or a request for /stop.

    Attributes:
        files: The files of each repository.
        asked: Every requested path.
        sent: Every downloaded file, as REPOSITORY/NAME.
    """

    def __init__(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.files = files
        self.asked: list[str] = []
        self.sent: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def run(self, script: str, home: Path) -> Any:
        """Run Python in a subprocess that uses this hub, and return the JSON that it prints."""
        inherited = {
            key: value for key, value in os.environ.items() if not (key.lower().endswith("_proxy") or key.startswith("HF_"))
        }
        changes = {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.server_port}",
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", script], env={**inherited, **changes}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def hub_of() -> Iterator[Callable[..., Hub]]:
    """Start a hub with some files."""
    opened: list[Hub] = []

    def serve(files: Mapping[str, Mapping[str, bytes]]) -> Hub:
        opened.append(Hub(files))
        return opened[-1]

    yield serve
    for hub in opened:
        hub.close()
