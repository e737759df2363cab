"""Commands of plugins, and configurations: names are looked up in installed packages before anything is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from zoo.cli import main

EVIL = "evilmod.C"
DESCRIBED = {"class_path": EVIL}
WITH_ARGS = {"class_path": EVIL, "init_args": {"x": 1}}
TRAINER = ("callbacks", "logger", "strategy")
OPTIONS = ("backbone", "algebra", "data", "task")
VALUES = {"text": EVIL, "class": DESCRIBED, "list": [DESCRIBED]}
CASES: dict[str, dict] = {f"callbacks-{what}": {"trainer": {"callbacks": VALUES[what]}} for what in VALUES}
CASES |= {f"{name}-args": {"trainer": {name: WITH_ARGS}} for name in TRAINER}
CASES |= {name: {name: EVIL} for name in OPTIONS}
CASES |= {f"{name}-reference": {name: "evilmod:C"} for name in ("backbone", "data")}
CASES |= {
    "nested": {"trainer": {"strategy": {"class_path": "lightning.pytorch.strategies.DDPStrategy", "init_args": DESCRIBED}}},
    "metrics": {"metrics": [EVIL]},
}
SCRIPT = [str(Path(sys.executable).parent / "zoo")]
START = {
    "script": SCRIPT,
    "module": [sys.executable, "-m", "zoo"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "-m", "zoo"],
    "path": SCRIPT,
}
FEW = ("torchrun",)  # like `module` it imports from the working directory; a script does not


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module that creates a file on import."""
    (tmp_path / "evilmod.py").write_text(f"open({str(tmp_path / 'OWNED')!r}, 'w').close()\nclass C: pass\n")
    return tmp_path


def write(folder: Path, case: str) -> None:
    values = {"backbone": "vit(dim=16,depth=1)", "algebra": "quaternion", "run_dir": "run"} | CASES[case]
    (folder / "config.yaml").write_text(yaml.safe_dump(values))


@pytest.mark.parametrize("case", CASES)
def test_modules_next_to_a_configuration_are_not_imported(folder, monkeypatch, capsys, case):
    monkeypatch.syspath_prepend(str(folder))
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    write(folder / "work", case)
    assert main(["fit", "-c", "config.yaml"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    assert "evilmod" not in sys.modules
    assert sorted(path.name for path in folder.rglob("*")) == ["config.yaml", "evilmod.py", "work"]


def start(folder: Path, way: str, *words: str) -> str:
    env = os.environ | ({"PYTHONPATH": str(folder)} if way == "path" else {})
    done = subprocess.run([*START[way], "fit", *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert "zoo: " in done.stderr
    assert not (folder / "OWNED").exists(), done.stderr
    return done.stderr


@pytest.mark.parametrize("way", [way if way in FEW else pytest.param(way, marks=pytest.mark.slow) for way in START])
def test_every_way_to_start(folder, way):
    write(folder, "callbacks-list")
    start(folder, way, "-c", "config.yaml")


@pytest.mark.parametrize("way", ["module", "path"])
def test_distributions_in_the_working_directory_are_ignored(folder, way):
    info = folder / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("evilmod\n")
    (info / "entry_points.txt").write_text("[zoo.backbones]\nevil = evilmod:C\n")
    assert "unknown backbone 'evil'" in start(folder, way, "--backbone", "evil", "--algebra", "quaternion")


GREET = '''
def greet(name: str, *, loud: bool = False) -> int:
    """Greet somebody: zoo greet NAME.

    Args:
        name: Who.
        loud: Shout.
    """
    print(f"hello {name}" + "!" * loud)
    return 3
'''


@pytest.fixture
def installed(environment):
    """Fake distributions with a sound command, broken ones, and one with the name of a built-in command."""
    points = "[zoo.commands]\ngreet = greet_command:greet\nfit = greet_command:greet\n"
    environment.install("greetings", points, {"greet_command.py": GREET})
    points = "[zoo.commands]\nbroken = broken_command:run\nempty = empty_command:run\nabsent = no_such_module:run\n"
    source = 'def run() -> None:\n    """Break."""\nraise RuntimeError("boom")\n'
    environment.install("faulty", points, {"broken_command.py": source, "empty_command.py": "run = 3\n"})


def test_a_plugin_adds_a_command(installed, call):
    assert call("greet", "Ada", "--loud") == (3, "hello Ada!\n", "")
    code, out, err = call("greet", "Ada", "--lou")
    assert (code, out) == (2, "")
    assert "--loud" in err


def test_help_lists_commands_of_plugins_without_importing_them(installed, call):
    page = call("--help").out
    assert "  greet       Greet somebody: zoo greet NAME [greetings 1.0]\n" in page
    assert "  broken      Break [faulty 1.0]\n" in page
    assert "  fit         Train a network" in page
    assert not {"greet_command", "broken_command"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("broken", "RuntimeError: boom"),
        ("absent", "no_such_module"),
    ],
)
def test_broken_plugins_affect_only_their_own_commands(installed, call, name, reason):
    code, out, err = call(name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"command '{name}' of faulty 1.0 does not load" in err
    assert reason in err
    assert call("greet", "Ada").code == 3


def test_completion_includes_commands_of_plugins(installed, call):
    code, out, err = call("completion", "bash")
    assert (code, err) == (0, "")
    assert 'greet) choices="--help --loud"' in out
    assert " greet" in out.splitlines()[2]
    assert " broken" in out.splitlines()[2]
