"""Atomic writing of files and folders."""

import json
from pathlib import Path

import pytest

from zoo import atomic
from zoo.atomic import new_folder, write_json, write_text


class Crash(BaseException):
    """An exception that is not an `Exception`."""


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_new_folder_is_created_atomically(tmp_path):
    target = tmp_path / "deep" / "model"
    with new_folder(target) as part:
        assert part.parent == target.parent  # renaming is atomic on the same file system
        (part / "a").write_text("1")
        (part / "sub").mkdir()
        (part / "sub" / "b").write_text("2")
        assert not target.exists()
    assert tree(tmp_path) == {"deep/model/a": "1", "deep/model/sub/b": "2"}
    assert target.stat().st_mode & 0o777 == 0o755


def test_an_existing_folder_is_replaced(tmp_path):
    for name in ("old", "new"):
        with new_folder(tmp_path / "model") as part:
            (part / name).write_text(name)
    assert tree(tmp_path) == {"model/new": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [RuntimeError, Crash])
def test_an_interrupted_write_keeps_the_old_folder(tmp_path, error):
    with new_folder(tmp_path / "model") as part:
        (part / "a").write_text("old")
    for name in ("model", "new"):
        with pytest.raises(error), new_folder(tmp_path / name) as part:  # noqa: PT012 (raised inside the context)
            (part / "a").write_text("half")
            raise error
    assert tree(tmp_path) == {"model/a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_keeps_the_old_folder(tmp_path, monkeypatch):
    with new_folder(tmp_path / "model") as part:
        (part / "a").write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"), new_folder(tmp_path / "model") as part:
        (part / "a").write_text("new")
    assert tree(tmp_path) == {"model/a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_files_are_flushed_before_renaming(tmp_path, monkeypatch):
    events: list[str] = []
    rename, sync = Path.rename, atomic.sync
    monkeypatch.setattr(Path, "rename", lambda self, to: (events.append("rename"), rename(self, to))[1])
    monkeypatch.setattr(atomic, "sync", lambda path: (events.append(path.name), sync(path))[1])
    with new_folder(tmp_path / "model") as part:
        (part / "a").write_text("1")
        name = part.name
    assert events == ["a", name, "rename", tmp_path.name]


def test_write_text_replaces_a_file(tmp_path):
    write_text(tmp_path / "a", "old")
    write_text(tmp_path / "a", "néw\n")
    assert (tmp_path / "a").read_bytes() == "néw\n".encode()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_write_json_indents_and_rejects_nan(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, 2.5, None]})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {"x": [1, 2.5, None]}
    assert text.endswith("\n")
    assert len(text.splitlines()) > 1
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(tmp_path / "a.json", {"x": value})
    assert (tmp_path / "a.json").read_text() == text
