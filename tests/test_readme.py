"""README.md and docs/: commands parse, Python code runs, the table matches the results, links resolve."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import machine, readme
from zoo import registry
from zoo.cli import main
from zoo.cli.commands import command_names

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES_WITH_COMMANDS = ("included.md", "text.md", "generating.md", "sharing.md", "converting.md")
DOCS = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES_WITH_COMMANDS)
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "plugins/README.md",
    *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")),
]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
FENCED = re.compile(r"```(\w+)\n(.*?)```", flags=re.DOTALL)
STEP = re.compile(r"(<!-- not run: [^\n]* -->\n)?```(\w+)\n(.*?)```", flags=re.DOTALL)
BLOCKS = FENCED.findall(TEXT)
STEPS = {page.stem: STEP.findall(page.read_text(encoding="utf-8")) for page in TUTORIALS}
NOT_RUN = [(kind, block) for steps in STEPS.values() for mark, kind, block in steps if mark]


def commands(block):
    """Return the zoo commands in a code block."""
    lines = (line.partition("  #")[0].strip() for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if line.startswith("zoo ")]


COMMAND_LINES = list(
    dict.fromkeys(line for kind, block in BLOCKS + FENCED.findall(DOCS) + NOT_RUN if kind == "bash" for line in commands(block))
)


def test_readme_has_the_commands_to_install_and_test():
    assert "pip install . && zoo fit --backbone vit --algebra quaternion" in TEXT
    assert 'pip install ".[test]" && pytest' in TEXT


@pytest.mark.parametrize(("epochs", "accuracy"), [(6, 0.8), pytest.param(None, 0.96, marks=pytest.mark.slow)])
def test_the_first_command_trains_on_digits(tmp_path, epochs, accuracy):
    command = [sys.executable, "-m", "zoo", "fit", "--backbone", "vit", "--algebra", "quaternion"]
    command += ["--trainer.max_epochs", str(epochs)] if epochs else []
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert f"epoch 1/{epochs or 50}  " in done.stdout
    assert "GPU available" not in done.stdout, "output of Lightning"
    summary = json.loads(next(tmp_path.glob("runs/*/summary.json")).read_text(encoding="utf-8"))
    assert summary["metrics"]["accuracy"] >= accuracy
    assert summary["parameters"]["total"] <= 0.30 * summary["parameters"]["real_twin"]
    assert f"{summary['parameters']['real_twin']:,}" in done.stdout


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_parse(line, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    _, command, *arguments = shlex.split(line)
    assert command in command_names()
    if command == "fit":
        assert main(["fit", *arguments, "--print-config"]) == 0, capsys.readouterr().err
    elif command in ("list", "info"):
        assert main([command, *arguments]) == 0, capsys.readouterr().err


def test_python_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [block for kind, block in BLOCKS if kind == "python"]
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


@pytest.fixture
def unregistered():
    """Unregister the entries that a test registers."""
    groups = registry.GROUPS
    before = {group: set(registry.entries(group)) for group in groups}
    yield
    for group in groups:
        for entry in set(registry.entries(group)) - before[group]:
            registry.unregister(group, entry.name)


@pytest.mark.parametrize("page", [name for name, steps in STEPS.items() if name != "devices"])
def test_tutorials_run(page, tmp_path, monkeypatch, capsys, unregistered):
    monkeypatch.chdir(tmp_path)
    steps = [(kind, block) for mark, kind, block in STEPS[page] if not mark]
    assert steps
    names = {"__name__": page}
    for kind, block in steps:
        if kind == "python":
            exec(compile(block, page, "exec"), names)
        for line in commands(block):
            assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)


def test_the_table_matches_the_results():
    results = json.loads((ROOT / "benchmarks" / "results" / "digits.json").read_text(encoding="utf-8"))
    for page in readme.PAGES:
        assert f"{readme.BEGIN}\n{readme.table(results)}\n{machine.END}" in page.read_text(encoding="utf-8")
    assert {row["seed"] for row in results["rows"]} == {0, 1, 2}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert targets or page != "README.md"
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []


@pytest.mark.parametrize("group", ["backbones", "datasets"])
def test_all_entries_are_documented(group):
    names = {entry.name for entry in registry.entries(group) if entry.ours}
    included = (ROOT / "docs" / "included.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z_0-9]+)", included))
    assert sorted(name for name in names - documented if not name.endswith("mnist")) == []
