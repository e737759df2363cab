"""A configuration cannot run code: whatever it names is looked up among installed packages before anything is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.cli import main

EVIL = "evilmod.C"
DDP = "lightning.pytorch.strategies.DDPStrategy"
TIMER = "lightning.pytorch.callbacks.Timer"
DESCRIBED = {"class_path": EVIL}
WITH_ARGS = {"class_path": EVIL, "init_args": {"x": 1}}
TRAINER = ("callbacks", "logger", "plugins", "strategy", "profiler", "accelerator")
OPTIONS = ("backbone", "algebra", "data", "task", "embedding", "vectors", "init_from", "teacher", "scope", "init", "kernel")


def hostile() -> dict[str, dict]:
    """Return configurations by name, each of which names the module beside it in another place."""
    cases = {}
    for name in TRAINER:
        for what, value in {"text": EVIL, "class": DESCRIBED, "list": [DESCRIBED], "args": WITH_ARGS, "mixed": [EVIL]}.items():
            cases[f"{name}-{what}"] = {"trainer": {name: value}}
    nested = {"class_path": DDP, "init_args": {"accelerator": EVIL}}
    cases["nested-text"] = {"trainer": {"strategy": nested}}
    cases["nested-class"] = {"trainer": {"strategy": {"class_path": DDP, "init_args": {"checkpoint_io": DESCRIBED}}}}
    cases["deep"] = {"trainer": {"callbacks": [{"class_path": TIMER, "init_args": {"duration": {"a": [DESCRIBED]}}}]}}
    cases["function"] = {"trainer": {"callbacks": [{"class_path": "os.system", "init_args": {"command": "touch OWNED"}}]}}
    cases["builtin"] = {"trainer": {"callbacks": [{"class_path": "builtins.exec", "init_args": {"source": "1"}}]}}
    for name in OPTIONS:
        cases[name] = {name: EVIL}
    cases |= {f"{name}-reference": {name: "evilmod:C"} for name in ("backbone", "algebra", "data", "task")}
    cases["metrics"] = {"metrics": [EVIL]}
    cases["optimizer"] = {"optimizer": {"name": EVIL}}
    cases["schedule"] = {"schedule": {"name": EVIL}}
    return cases


CASES = hostile()
START = {
    "script": [str(Path(sys.executable).parent / "zoo")],
    "module": [sys.executable, "-m", "zoo"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "-m", "zoo"],
    "path": [str(Path(sys.executable).parent / "zoo")],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module that leaves a file behind when it is imported."""
    (tmp_path / "evilmod.py").write_text(f"open({str(tmp_path / 'OWNED')!r}, 'w').close()\nclass C: pass\n")
    return tmp_path


def write(folder: Path, case: str) -> None:
    values = {"backbone": "vit(dim=16,depth=1)", "algebra": "quaternion", "run_dir": "run"} | CASES[case]
    (folder / "config.yaml").write_text(yaml.safe_dump(values))


@pytest.mark.parametrize("case", CASES)
def test_nothing_beside_a_configuration_is_imported(folder, monkeypatch, capsys, case):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    write(folder / "work", case)
    assert main(["fit", "-c", "config.yaml"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    assert "evilmod" not in sys.modules
    assert sorted(path.name for path in folder.rglob("*")) == ["config.yaml", "evilmod.py", "work"]


def start(folder: Path, way: str, case: str) -> None:
    write(folder, case)
    env = os.environ | ({"PYTHONPATH": str(folder)} if way == "path" else {})
    done = subprocess.run([*START[way], "fit", "-c", "config.yaml"], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert "zoo: " in done.stderr
    assert not (folder / "OWNED").exists(), done.stderr


@pytest.mark.parametrize("way", START)
def test_each_way_to_start(folder, way):
    start(folder, way, "callbacks-list")


@pytest.mark.slow
@pytest.mark.parametrize("way", START)
@pytest.mark.parametrize("case", CASES)
def test_each_way_to_start_with_each(folder, way, case):
    start(folder, way, case)


@pytest.mark.parametrize("way", ["module", "path"])
def test_a_distribution_in_the_working_folder_is_not_installed(folder, way):
    info = folder / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("evilmod\n")
    (info / "entry_points.txt").write_text("[zoo.backbones]\nevil = evilmod:C\n")
    done = subprocess.run(
        [*START[way], "fit", "--backbone", "evil", "--algebra", "quaternion"],
        cwd=folder,
        env=os.environ | ({"PYTHONPATH": str(folder)} if way == "path" else {}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "unknown backbone 'evil'" in done.stderr
    assert not (folder / "OWNED").exists()
