"""Public API of ``import zoo``: lazy imports and public names; atomic writing of files and folders."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import zoo
from tests.test_architecture import REFERENCE, public_names
from zoo import atomic
from zoo.atomic import new_folder, write_json, write_text

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 10}


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_import_loads_no_heavy_packages():
    heavy = {"torch", "lightning", "timm", "numpy", "sklearn", "torchmetrics", "jsonargparse", "yaml"}
    loaded = python(f"import sys, zoo; dir(zoo); zoo.InputError; print(sorted({heavy!r} & set(sys.modules)))")
    assert loaded.strip() == "[]"


MISTAKES = """
test nothing
predict runs/none text
generate runs/none
average runs/none
prune runs/none --ratio 0.5
convert --algebra quaternion
export vit-digits-quaternion --to x --format onnxx
serve runs/none
sweep none.yaml
frontier none.yaml
lottery --backbone vit
"""


def test_mistakes_are_reported_before_torch_is_imported():
    code = f"""
import sys
from zoo.cli import main
for words in {MISTAKES.strip().splitlines()}:
    print(main(words.split()), "torch" in sys.modules, words)
"""
    assert python(code).splitlines() == [f"2 False {words}" for words in MISTAKES.strip().splitlines()]


@pytest.mark.parametrize("name", zoo.__all__)
def test_public_names_resolve_and_are_documented(name):
    value = getattr(zoo, name)
    assert callable(value)
    assert value.__doc__
    assert name in dir(zoo)


def test_documented_names_exist():
    optional = ("zoo.peft", "zoo.transformers")
    names = sorted(name for name in public_names(REFERENCE) if not name.startswith(optional))
    assert len(names) > 100
    for name in names:
        pkgutil.resolve_name(name)


def test_unknown_names_raise_attribute_error():
    with pytest.raises(AttributeError, match="'zoo' has no attribute 'nonsense'"):
        zoo.nonsense  # noqa: B018


def test_backbone():
    torch.manual_seed(0)
    net = zoo.backbone("vit(dim=32,depth=1)", algebra="quaternion", **INFO)
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    twin = zoo.backbone("vit(dim=32,depth=1)", algebra=zoo.algebra("real"), **INFO)
    assert zoo.count(net)["total"] < 0.4 * zoo.count(twin)["total"]
    assert zoo.count(net) == {"total": sum(parameter.numel() for parameter in net.parameters()), "embedding": 0}


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
