"""Failing servers, disks and processes never leave an incomplete model in the cache."""

import errno
import hashlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.errors import raises
from tests.faults.hostile import seal
from tests.hub.test_pull import contents, published
from zoo.atomic import write_json
from zoo.checkpoint.manifest import file_record, read_json, sealed
from zoo.hub import cache, download
from zoo.hub.sources import locate

WEIGHTS = "model.safetensors"


def raw(handler, head: str, body: bytes = b"") -> bool:
    """Send these bytes and close the connection."""
    handler.wfile.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    handler.close_connection = True
    return True


def reset(handler) -> bool:
    """Reset the connection."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.shutdown(socket.SHUT_RD)
    handler.connection.close()
    handler.close_connection = True
    return True


def drip(handler, data: bytes) -> bool:
    """Send one byte at a time with pauses."""
    try:
        for byte in data:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.05)
    except OSError:
        pass
    handler.close_connection = True
    return True


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


OK = "HTTP/1.1 200 OK\nContent-Length: {}"
FAULTS = {  # fault, error code, part of the message
    "another file of the same size": (lambda h, c: bool(h.send(200, flipped(c))) or True, "corrupt", "checksum"),
    "cut short": (lambda h, c: raw(h, OK.format(len(c)), c[: len(c) // 2]), "failed", "4 attempts"),
    "cut short, and says so": (lambda h, c: bool(h.send(200, c[:99])) or True, "failed", "ended after 99 of"),
    "too long": (lambda h, c: bool(h.send(200, c + b"x")) or True, "corrupt", "has more than the"),
    "endless": (lambda h, c: raw(h, "HTTP/1.1 200 OK", c * 50), "corrupt", "has more than the"),
    "404": (lambda h, c: bool(h.send(404)) or True, "missing", "404 Not Found"),
    "403 with an escape": (lambda h, c: bool(h.send(403, X_Error_Message="no\x1b[2J")) or True, "failed", r"403 no\x1b[2J"),
    "429": (lambda h, c: bool(h.send(429)) or True, "failed", "429 Too Many Requests (4 attempts)"),
    "429 for an hour": (lambda h, c: bool(h.send(429, Retry_After="3600")) or True, "failed", "asks to wait 3600 s"),
    "500": (lambda h, c: bool(h.send(500)) or True, "failed", "500 Internal Server Error (4 attempts)"),
    "503": (lambda h, c: bool(h.send(503)) or True, "failed", "503 Service Unavailable (4 attempts)"),
    "a redirect to itself": (lambda h, c: bool(h.send(302, Location=h.path)) or True, "failed", "redirects too often"),
    "a redirect to a file": (lambda h, c: bool(h.send(302, Location="file:///etc/passwd")) or True, "untrusted", "file:"),
    "a redirect to nowhere": (lambda h, c: bool(h.send(302, Location="http://[")) or True, "failed", ""),
    "no answer": (lambda h, c: bool(time.sleep(0.9)), "failed", "4 attempts"),
    "a reset": (lambda h, c: reset(h), "failed", "4 attempts"),
    "no HTTP": (lambda h, c: raw(h, "SSH-2.0-OpenSSH"), "failed", "4 attempts"),
    "slow headers": (lambda h, c: drip(h, b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40), "failed", "no answer within 0.6 s"),
    "a slow body": (lambda h, c: raw(h, OK.format(len(c))) and drip(h, c[:60]), "failed", "4 attempts"),
}
SLOW = ("no answer", "slow headers", "a slow body")


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        pytest.param(fault, name, marks=pytest.mark.slow if fault in SLOW and name != WEIGHTS else ())
        for fault in FAULTS
        for name in (WEIGHTS, "manifest.json")
    ],
)
def test_permanent_faults(hub, home, sound, fault, name, monkeypatch):
    if name == "manifest.json" and fault in ("another file of the same size", "cut short, and says so", "too long", "endless"):
        pytest.skip("what a manifest says is checked by itself")
    url, (answer, code, text) = hub.put("release", sound), FAULTS[fault]
    hub.fault = lambda handler, content: handler.path.endswith(name) and answer(handler, content)
    with monkeypatch.context() as patch:
        if fault in SLOW:
            patch.setattr(download, "TIMEOUT", 0.2)
            patch.setattr(download, "PATIENCE", 0.3)
        with raises(code, url, text) as caught:
            locate(url)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert published(home) == []
    hub.fault = None
    assert contents(locate(url)) == contents(sound), "the next attempt is not the worse for it"


@pytest.mark.parametrize("fault", ["another file of the same size", "cut short", "429", "500", "503", "no answer", "a reset"])
def test_transient_faults(hub, home, sound, fault, monkeypatch):
    url, (answer, *_) = hub.put("release", sound), FAULTS[fault]
    monkeypatch.setattr(download, "TIMEOUT", 0.7)
    hub.fault = lambda handler, content: (
        len(hub.got(handler.path)) == 1 and handler.path.endswith(WEIGHTS) and answer(handler, content)
    )
    assert contents(locate(url)) == contents(sound)


@pytest.mark.parametrize("answer", ["another ETag", "another range", "200 instead", "416", "corrupt rest"])
def test_resume_when_the_file_has_changed(hub, home, sound, answer):
    """The rest of the response may belong to another file."""
    url, half = hub.put("release", sound), (sound / WEIGHTS).stat().st_size // 2

    def fault(handler, content):
        count = len(hub.got(WEIGHTS))
        if not handler.path.endswith(WEIGHTS) or count > 3:
            return False
        if count == 3:  # one wrong file is retried, which shows whether the partial one counted
            handler.send(200, flipped(content) if answer == "another ETag" else content)
            return True
        if count == 1:
            return raw(handler, f'{OK.format(len(content))}\nETag: "one"', content[:half])
        rest = content[half:]
        answers = {
            "another ETag": (206, bytes(len(rest)), {"ETag": '"two"', "Content_Range": f"bytes {half}-"}),
            "another range": (206, content[1:], {"ETag": '"one"', "Content_Range": "bytes 1-"}),
            "200 instead": (200, content, {}),
            "416": (416, b"", {}),
            "corrupt rest": (206, flipped(rest), {"ETag": '"one"', "Content_Range": f"bytes {half}-"}),
        }
        code, body, headers = answers[answer]
        handler.send(code, body, **headers)
        return True

    hub.fault = fault
    assert contents(locate(url)) == contents(sound)
    assert [span for _, path, span in hub.log if path.endswith(WEIGHTS)][:2] == ["", f"bytes={half}-"]


def listing(name: str) -> dict[str, object]:
    """Return a manifest with an additional file."""
    return {name: {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}}


@pytest.mark.parametrize(
    ("files", "facts", "code"),
    [
        # invalid names: outside the folder, hidden, equal on some file systems, unprintable, too long
        *((listing(name), {}, "corrupt") for name in ("../x", "/etc/x", "sub/x", "..\\x", ".x", "README.MD", "Manifest.json")),
        *((listing(name), {}, "corrupt") for name in ("x\x1b[2J", "x" * 101)),
        ({WEIGHTS: {"size": 10**18}}, {}, "failed"),
        *(({WEIGHTS: {"size": size}}, {}, "corrupt") for size in (-1, "9", True)),
        ({WEIGHTS: {"sha256": "../../x"}}, {}, "corrupt"),
        # values that are not numbers, unprintable names
        *(({}, {"metrics": metrics}, "corrupt") for metrics in ({"accuracy": "high"}, [1], {"a\u001b]0;b\u0007": 0.5})),
        ({}, {"parameters": {"total": 10**400}}, "corrupt"),
        *(({}, {"spread": spread}, "corrupt") for spread in ({"mean": {"accuracy": []}}, 3)),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_an_untrusted_manifest_is_checked_before_other_downloads(hub, home, model, files, facts, code):
    manifest = read_json(model / "manifest.json")
    for name, record in files.items():
        manifest["files"][name] = manifest["files"].get(name, {}) | record
    write_json(model / "manifest.json", sealed(manifest | facts))
    with raises(code) as caught:
        locate(hub.put("release", model))
    assert str(caught.value).isprintable()
    assert hub.got() == ["/release/manifest.json"]
    assert not list(home.rglob("x"))
    assert published(home) == []


NONSENSE = ("", "[]", "{}", "<html>Not here</html>", '{"files": 3}', "\x00" * 9, "[" * 10**5, "x" * (2**22 + 1))


@pytest.mark.parametrize("text", NONSENSE)
def test_invalid_manifests(hub, home, text):
    hub.files["/release/manifest.json"] = text.encode()
    with raises("data" if len(text) > 2**22 else "corrupt", "manifest.json") as caught:
        locate(f"{hub.url}/release")
    assert len(str(caught.value)) < 400
    assert published(home) == []


def test_a_manifest_with_a_wrong_checksum(hub, home, model):
    values = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps(values | {"metrics": {"accuracy": 1.0}}))
    with raises("corrupt"):
        locate(hub.put("release", model))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_full_disk(hub, home, sound, monkeypatch, number):
    url = hub.put("release", sound)
    opened = Path.open

    def full(self, mode="r", *args, **options):
        if self.name == f"{WEIGHTS}.part" and "r" not in mode:
            raise OSError(number, os.strerror(number), str(self))
        return opened(self, mode, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with raises("failed", home, os.strerror(number)):
            locate(url)
    assert published(home) == []
    assert contents(locate(url)) == contents(sound)


def test_unreachable_server(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with raises("failed", "Connection refused (4 attempts)"):
            locate(f"http://127.0.0.1:{taken.getsockname()[1]}/x")


@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_kill_at_random_points(hub, home, model, monkeypatch, count):
    """The cache never contains an incomplete model, and the next process completes it."""
    (model / "more.bin").write_bytes(random.Random(0).randbytes(400_000))
    seal(model)
    url, draw = hub.put("release", model), random.Random(count)

    def slowly(handler, content):
        if not handler.path.endswith("more.bin"):
            return False
        start = int(handler.headers.get("Range", "bytes=0-")[6:-1])
        handler.send_response(206 if start else 200)
        for name, value in {"ETag": '"x"', "Content-Range": f"bytes {start}-", "Content-Length": len(content) - start}.items():
            handler.send_header(name, str(value))
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
    for _ in range(count):
        with subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
            assert worker.stdout is not None
            worker.stdout.read(1)
            time.sleep(draw.uniform(0, 0.5))
            worker.send_signal(signal.SIGKILL)
        published(home)
    hub.fault = None
    assert contents(locate(url)) == contents(model)
    assert [path.name for path in home.rglob(".*")] == []
    assert list((home / "partial").iterdir()) == []


def test_slow_but_steady_downloads_succeed(hub, home, model, monkeypatch):
    (model / "more.bin").write_bytes(bytes(3000))
    seal(model)
    monkeypatch.setattr(download, "SLOWEST", 100)
    monkeypatch.setattr(download, "PATIENCE", 0.2)

    def steady(handler, content):
        if not handler.path.endswith("more.bin"):
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        for at in range(0, len(content), 300):
            handler.wfile.write(content[at : at + 300])
            time.sleep(0.1)
        return True

    hub.fault = steady
    assert contents(locate(hub.put("release", model))) == contents(model)
    assert len(hub.got("more.bin")) == 1


def test_free_space_is_checked_for_missing_bytes_only(hub, home, model, monkeypatch):
    url, sizes = hub.put("release", model), read_json(model / "manifest.json")["files"]
    digest = file_record(model / "manifest.json")["sha256"]
    part = home / "partial" / digest
    part.mkdir(parents=True)
    (part / f"{WEIGHTS}.part").write_bytes((model / WEIGHTS).read_bytes()[:-1])
    total = sum(record["size"] for record in sizes.values())
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=total - sizes[WEIGHTS]["size"] + 1))
    assert (locate(url) / WEIGHTS).is_file()


def test_a_redirect_on_the_same_server_keeps_the_token(hub, home, sound, monkeypatch):
    hub.commit("me/net", contents(sound))
    hub.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.fault = lambda handler, content: (
        "/me/old/" in handler.path and (handler.send(307, Location=handler.path.replace("old", "net")) or True)
    )
    assert contents(locate("hf:me/old")) == contents(sound)
