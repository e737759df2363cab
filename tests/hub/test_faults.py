"""Failing servers, disks and processes never leave an incomplete model in the cache."""

import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.errors import raises
from tests.faults.hostile import seal
from tests.hub.test_pull import contents, published
from zoo.atomic import write_json
from zoo.checkpoint.manifest import read_json, sealed
from zoo.hub import cache
from zoo.hub.sources import locate

WEIGHTS = "model.safetensors"


def raw(handler, length: int | None, body: bytes) -> bool:
    """Send a body that may be shorter than promised, and close the connection."""
    promise = b"" if length is None else b"\r\nContent-Length: %d" % length
    handler.wfile.write(b"HTTP/1.1 200 OK" + promise + b"\r\n\r\n" + body)
    handler.close_connection = True
    return True


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


FAULTS = {  # fault, error code, part of the message
    "another file of the same size": (lambda h, c: bool(h.send(200, flipped(c))) or True, "corrupt", "checksum"),
    "cut short": (lambda h, c: raw(h, len(c), c[: len(c) // 2]), "failed", "4 attempts"),
    "endless": (lambda h, c: raw(h, None, c * 50), "corrupt", "has more than"),
    "403 with an escape": (lambda h, c: bool(h.send(403, X_Error_Message="no\x1b[2J")) or True, "failed", r"403 no\x1b[2J"),
    "503": (lambda h, c: bool(h.send(503)) or True, "failed", "503 Service Unavailable (4 attempts)"),
    "a redirect to a file": (lambda h, c: bool(h.send(302, Location="file:///etc/passwd")) or True, "invalid", "web server"),
}
CASES = [*((fault, WEIGHTS) for fault in FAULTS), *((fault, "manifest.json") for fault in ("cut short", "503"))]


@pytest.mark.parametrize(("fault", "name"), CASES)
def test_permanent_faults(hub, home, sound, fault, name):
    url, (answer, code, text) = hub.put("release", sound), FAULTS[fault]
    hub.fault = lambda handler, content: handler.path.endswith(name) and answer(handler, content)
    with raises(code, url, text) as caught:
        locate(url)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert published(home) == []
    hub.fault = None
    assert contents(locate(url)) == contents(sound), "the next attempt is not the worse for it"


@pytest.mark.parametrize("fault", ["another file of the same size", "503"])
def test_transient_faults(hub, home, sound, fault):
    url, (answer, *_) = hub.put("release", sound), FAULTS[fault]
    hub.fault = lambda handler, content: (
        len(hub.got(handler.path)) == 1 and handler.path.endswith(WEIGHTS) and answer(handler, content)
    )
    assert contents(locate(url)) == contents(sound)


@pytest.mark.parametrize("status", [200, 206, 416])
def test_resume_when_the_file_has_changed(hub, home, sound, status):
    """The server sends the whole file, the rest of another one, or has a shorter one."""
    url, half = hub.put("release", sound), (sound / WEIGHTS).stat().st_size // 2

    def fault(handler, content):
        count = len(hub.got(WEIGHTS))
        if not handler.path.endswith(WEIGHTS) or count > 2:
            return False
        if count == 1:
            return raw(handler, len(content), content[:half])
        handler.send(status, {200: content, 206: bytes(len(content) - half), 416: b""}[status])
        return True

    hub.fault = fault
    assert contents(locate(url)) == contents(sound)
    assert [span for _, path, span in hub.log if path.endswith(WEIGHTS)][:2] == ["", f"bytes={half}-"]


def test_redirects_from_https_to_http_are_refused():
    first, last = (httpx2.Request("GET", f"{scheme}://host/x") for scheme in ("https", "http"))
    for start, code in ((first, "untrusted"), (last, None)):
        response = httpx2.Response(200, request=last, history=[httpx2.Response(302, request=start)])
        address = str(start.url)
        if code is None:
            cache._check(address, response)
        else:
            with raises(code, "http://host/x"):
                cache._check(address, response)


def listing(name: str) -> dict[str, object]:
    """Return a manifest with an additional file."""
    return {name: {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}}


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        *((listing(name), {}) for name in ("../x", "/etc/x", "README.MD", "x\x1b[2J")),
        *(({WEIGHTS: record}, {}) for record in ({"size": -1}, {"sha256": "../../x"})),
        *(({}, {"metrics": metrics}) for metrics in ({"accuracy": "high"}, {"a\u001b]0;b\u0007": 0.5})),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_an_untrusted_manifest_is_checked_before_other_downloads(hub, home, model, files, facts):
    manifest = read_json(model / "manifest.json")
    for name, record in files.items():
        manifest["files"][name] = manifest["files"].get(name, {}) | record
    write_json(model / "manifest.json", sealed(manifest | facts))
    with raises("corrupt") as caught:
        locate(hub.put("release", model))
    assert str(caught.value).isprintable()
    assert hub.got() == ["/release/manifest.json"]
    assert not list(home.rglob("x"))


@pytest.mark.parametrize("text", ["", "<html>Not here</html>", "[" * 10**5, "x" * (2**22 + 1)])
def test_invalid_manifests(hub, home, text):
    hub.files["/release/manifest.json"] = text.encode()
    with raises("corrupt", "manifest.json") as caught:
        locate(f"{hub.url}/release")
    assert len(str(caught.value)) < 400
    assert published(home) == []


def test_a_model_larger_than_the_disk_is_not_downloaded(hub, home, model):
    """The manifest of a stranger may promise any size."""
    manifest = read_json(model / "manifest.json")
    manifest["files"][WEIGHTS]["size"] = 2**60
    write_json(model / "manifest.json", sealed(manifest))
    with raises("failed", "1,152,921,504,6", "ZOO_HOME"):
        locate(hub.put("huge", model))
    assert hub.got() == ["/huge/manifest.json"]


def test_full_disk(hub, home, sound, monkeypatch):
    url = hub.put("release", sound)
    opened = Path.open

    def full(self, mode="r", *args, **options):
        if self.name == WEIGHTS and "r" not in mode:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return opened(self, mode, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with raises("failed", home, "No space left on device"):
            locate(url)
    assert published(home) == []


def test_kill_at_random_points(hub, home, model):
    """The cache never contains an incomplete model, and the next process completes it."""
    (model / "more.bin").write_bytes(random.Random(0).randbytes(400_000))
    seal(model)
    url, draw = hub.put("release", model), random.Random(0)

    def slowly(handler, content):
        if not handler.path.endswith("more.bin"):
            return False
        start = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        try:
            for at in range(start, len(content), 20_000):
                handler.wfile.write(content[at : at + 20_000])
                time.sleep(0.02)
        except OSError:
            handler.close_connection = True
        return True

    hub.fault = slowly
    code = "import sys; from zoo.hub.sources import locate; print(1, flush=True); locate(sys.argv[1])"
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
            assert worker.stdout is not None
            worker.stdout.read(1)
            time.sleep(draw.uniform(0, 0.5))
            worker.send_signal(signal.SIGKILL)
        published(home)
    hub.fault = None
    assert contents(locate(url)) == contents(model)
    assert list((home / "partial").iterdir()) == []
