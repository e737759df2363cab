"""Pull models from web servers and from the Hub, and use them offline."""

import hashlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.errors import raises
from tests.faults.hostile import seal
from tests.hub.server import serving
from zoo.checkpoint.manifest import verify
from zoo.hub import cache
from zoo.hub.sources import locate


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def published(home: Path) -> list[Path]:
    """Return the cached model folders after verifying them."""
    folders = sorted(folder for folder in (home / "models").glob("*") if not folder.name.startswith("."))
    for folder in folders:
        verify(folder, folder.name)
    return folders


def snapshots(home: Path, repo: str) -> list[Path]:
    """Return the folders of a repository in the cache of the Hub."""
    return sorted((home.parent / "hub" / f"models--{repo.replace('/', '--')}" / "snapshots").iterdir())


def test_a_folder_of_a_web_server(hub, home, sound):
    url = hub.put("release", sound)
    folder = locate(url)
    assert contents(folder) == contents(sound)
    assert folder == home / "models" / hashlib.sha256((sound / "manifest.json").read_bytes()).hexdigest()
    assert not list((home / "partial").iterdir())
    for same in (url, f"{url}/", f"{url}/manifest.json"):
        hub.log.clear()
        assert locate(same) == folder
        assert hub.got() == ["/release/manifest.json"]


def test_revisions_of_the_hub_are_immutable(hub, home, model):
    first = hub.commit("me/net", contents(model))
    (model / "README.md").write_text("other")
    seal(model)
    second = hub.commit("me/net", contents(model))
    assert (locate(f"hf:me/net@{first}") / "README.md").read_text() != "other"
    assert (locate("hf:me/net") / "README.md").read_text() == "other"
    assert all(first in path or second in path or path.endswith("main/manifest.json") for path in hub.got())
    hub.log.clear()
    locate(f"hf:me/net@{first}")
    assert hub.log == [], "a commit cannot change"
    assert {path.name for path in snapshots(home, "me/net")} == {first, second}


def test_all_files_come_from_one_commit_during_a_push(hub, home, sound, model):
    first = hub.commit("me/net", contents(sound))
    (model / "README.md").write_text("other")
    seal(model)

    def push(handler, content):
        if handler.command == "GET" and handler.path.endswith("main/manifest.json") and len(hub.got("manifest.json")) == 1:
            handler.send(200, content, X_Repo_Commit=first)
            hub.commit("me/net", contents(model))
            return True
        return False

    hub.fault = push
    assert contents(locate("hf:me/net")) == contents(sound)
    assert (locate("hf:me/net") / "README.md").read_text() == "other"


def test_the_token_is_sent_only_to_the_hub(hub, home, sound, monkeypatch):
    hub.commit("me/net", contents(sound))
    hub.token = "hf_secret"
    with raises("failed", "me/net", "401 Repository not found"):
        locate("hf:me/net")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving() as other:
        seen, weights = set(), contents(sound)["model.safetensors"]
        other.files = {f"/{name}": data for name, data in contents(sound).items()}
        other.fault = lambda handler, content: bool(seen.add(handler.headers.get("Authorization")))

        def redirect(handler, content):
            if content and handler.path.endswith(".safetensors"):
                digest, place = hashlib.sha256(weights).hexdigest(), f"{other.url}/model.safetensors"
                linked = {"X_Repo_Commit": hub.refs["me/net", "main"], "X_Linked_ETag": f'"{digest}"'}
                handler.send(302, Location=place, X_Linked_Size=str(len(weights)), **linked)
                return True
            return False

        hub.fault = redirect
        assert contents(locate("hf:me/net")) == contents(sound)
        assert seen == {None}
    hub.fault = lambda handler, content: (
        "/me/old/" in handler.path and (handler.send(307, Location=handler.path.replace("old", "net")) or True)
    )
    assert contents(locate("hf:me/old")) == contents(sound), "a redirect on the same server keeps the token"


def test_the_cached_copy_is_used_offline(hub, home, sound, monkeypatch):
    hub.commit("me/net", contents(sound))
    folder = locate("hf:me/net")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.log.clear()
    assert locate("hf:me/net") == folder
    assert hub.log == []
    with raises("missing", "hf:me/other", "HF_HUB_OFFLINE"):
        locate("hf:me/other")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    hub.fault = lambda handler, content: bool(handler.send(503)) or True
    assert locate("hf:me/net") == folder
    assert len(hub.log) == 1, "one attempt, since a copy is cached"
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    weights = (folder / "model.safetensors").resolve()
    weights.write_bytes(bytes(weights.stat().st_size))
    with raises("corrupt", "model.safetensors"):
        locate("me/net")
    monkeypatch.delenv("ZOO_OFFLINE")
    hub.fault = None
    assert contents(locate("me/net")) == contents(sound), "a damaged copy is downloaded again"
    (folder / "manifest.json").resolve().write_text("{}")
    assert contents(locate("me/net")) == contents(sound)


def test_partial_downloads_are_resumed(hub, home, sound):
    """The connection is lost during the download of the weights, and the server is down for a while."""
    url, weights = hub.put("release", sound), (sound / "model.safetensors").read_bytes()

    def ends(handler, content):
        if handler.path.endswith("model.safetensors"):
            if handler.headers.get("Range"):
                handler.send(503)
                return True
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content[:900])
            handler.close_connection = True
            return True
        return False

    hub.fault = ends
    with raises("failed", "model.safetensors", "503"):
        locate(url)
    assert published(home) == []
    (part,) = (home / "partial").glob("*/model.safetensors")
    assert part.read_bytes() == weights[:900]
    hub.fault, hub.log = None, []
    assert contents(locate(url)) == contents(sound)
    assert [span for _, path, span in hub.log if path.endswith(".safetensors")] == ["bytes=900-"]
    assert hub.got("config.json") == [], "complete files are not downloaded again"


def test_concurrent_processes_download_each_file_once(hub, home, sound):
    url = hub.put("release", sound)
    code = "import sys; from zoo.hub.sources import locate; print(locate(sys.argv[1])); assert 'torch' not in sys.modules"
    run = partial(subprocess.Popen, [sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True, env={**os.environ})
    workers = [run(stderr=subprocess.PIPE) for _ in range(4)]
    outputs = [worker.communicate(timeout=60) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4, outputs
    assert {out.strip() for out, _ in outputs} == {str(folder) for folder in published(home)}
    assert len(hub.got("model.safetensors")) == 1


def test_a_damaged_copy_is_downloaded_again(hub, home, sound, monkeypatch):
    url = hub.put("release", sound)
    weights = locate(url) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    monkeypatch.setenv("ZOO_OFFLINE", "1")
    with raises("missing", url, "ZOO_OFFLINE"):
        locate(url)
    monkeypatch.delenv("ZOO_OFFLINE")
    assert contents(locate(url)) == contents(sound)
    (weights.parent / "README.md").write_text("other")
    seal(weights.parent)
    verify(weights.parent)  # consistent, but not the model that was pulled
    assert contents(locate(url)) == contents(sound)
    weights.unlink()
    weights.symlink_to(sound / "model.safetensors")
    assert cache.model(weights.parent.name) is None, "symbolic links are not trusted"
    assert contents(locate(url)) == contents(sound)
    assert not weights.is_symlink()


def test_names_of_the_hub(hub, home, sound, monkeypatch):
    """``owner/name`` is a repository, with a revision, a token and the cache folder of the Hub."""
    monkeypatch.chdir(home.parent)
    first, tagged = (
        hub.commit("me/net", contents(sound) | {"extra": text}, name) for text, name in ((b"", "main"), (b"1", "v1"))
    )
    assert locate("me/net").name == first
    assert locate("me/net@v1") == locate("me/net", revision="v1") == locate("hf:me/net", revision=tagged)
    assert locate("me/net") in snapshots(home, "me/net")
    hub.token = "hf_secret"
    hub.commit("me/private", contents(sound))
    with raises("failed", "there is no folder 'me/private'", "401", "HF_TOKEN"):
        locate("me/private")
    assert contents(locate("me/private", token="hf_secret")) == contents(sound)
    hub.token = ""
    for source, options, code, text in (
        ("me/net@v1", {"revision": "v2"}, "conflict", "once"),
        ("me/net", {"revision": "v3"}, "missing", "404"),
        ("me/nothing", {}, "missing", "there is no folder 'me/nothing'"),
        (str(sound), {"revision": "v1"}, "invalid", "leave them out"),
        ("a--b/net", {}, "invalid", "Cannot have -- or .."),
    ):
        with raises(code, source, text) as caught:
            locate(source, **options)
        assert len(str(caught.value).splitlines()) == 1


def test_files_that_differ_from_the_manifest_are_not_used(hub, home, sound):
    hub.commit("me/net", contents(sound) | {"README.md": b"other"})
    with raises("corrupt", "hf:me/net", "README.md"):
        locate("hf:me/net")
    hub.commit("me/empty", {"README.md": b""})
    with raises("missing", "manifest.json", "me/empty"):
        locate("hf:me/empty")


@pytest.mark.parametrize("source", ["hf:net", "hf:me/net@", "hf:../etc", "hf:me/net/sub", "https://"])
def test_malformed_sources(hub, source):
    with raises("invalid", source):
        locate(source)
    assert hub.log == []


def test_pull_push_and_list_do_not_import_torch(hub, home, sound, tmp_path, monkeypatch):
    """HF_ENDPOINT selects the server."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    site = tmp_path / "site"
    code = "import sys; from zoo.cli import main; code = main(sys.argv[1:]); assert 'torch' not in sys.modules; sys.exit(code)"
    calls = (["push", sound, "hf:me/net"], ["pull", "hf:me/net"], ["publish", sound, "--to", site, "--name", "x"])
    for words in (*calls, ["list", "checkpoints"]):
        done = subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert len(snapshots(home, "me/net")) == 1
    assert (site / "catalogue.json").is_file()


def test_local_folders_take_precedence(hub, sound, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf:me").mkdir()
    (tmp_path / "hf:me" / "net").symlink_to(sound)
    assert locate("hf:me/net") == Path("hf:me/net")
    assert locate(f"file:{sound}") == locate(sound.as_uri()) == sound
    (tmp_path / "mine").mkdir()
    for nothing in ("runs/nothing", "mine/nothing"):
        assert locate(nothing) == Path(nothing)
    with raises("unknown", "nothing"):
        locate("nothing")
    assert hub.log == []
