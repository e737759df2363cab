"""README.md, docs/ and configs/: commands parse, Python code runs, tables match the results, links resolve."""

import functools
import inspect
import json
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest
import torch
import yaml
from zoo_experiments.lottery import check_lottery
from zoo_experiments.options import Lottery
from zoo_experiments.sweep import grid_points
from zoo_reports.frontier import best_networks, opponents

import zoo
from benchmarks import machine
from benchmarks.studies import frontier_page, gallery, papers_rows, readme, tickets
from benchmarks.studies.frontier_page import CONTROLS, depends_on_size
from tests.faults.process import Running
from tests.hub.conftest import home, hub
from zoo import registry
from zoo.cli import main
from zoo.cli.commands import command_names
from zoo.hub.sources import find_release
from zoo.pruning import prunable
from zoo.registry import Spec, build_options
from zoo.training.options import Fit
from zoo.training.resolve import load_data, resolve

__all__ = ["home", "hub"]  # fixtures
ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES_WITH_COMMANDS = ("included.md", "text.md", "generating.md", "sharing.md", "converting.md", "gallery.md")
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
PRINTED = [block for kind, block in BLOCKS if kind == "text"]
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
    shown, printed = (
        [re.sub(r"[\d.,]+", "#", line.rstrip()) for line in text.splitlines()] for text in (PRINTED[0], done.stdout)
    )
    assert [line for line in shown if line not in (*printed, "...", "#")] == []


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_parse(line, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    _, command, *arguments = shlex.split(line)
    assert command in command_names()
    if command == "fit":
        assert main(["fit", *arguments, "--print-config"]) == 0, capsys.readouterr().err
    elif command in ("list", "info"):
        assert main([command, *arguments]) == 0, capsys.readouterr().err


def test_python_code_runs_and_prints_what_the_readme_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    outputs = []
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, "README.md", "exec"), {})
            outputs.append(capsys.readouterr().out)
    pattern = ".*".join(re.escape(part) for part in PRINTED[1].split(" ...\n"))
    assert re.fullmatch(pattern, outputs[0], flags=re.DOTALL), outputs[0]


@pytest.fixture
def unregistered():
    """Unregister the entries that a test registers."""
    groups = registry.GROUPS
    before = {group: set(registry.entries(group)) for group in groups}
    yield
    for group in groups:
        for entry in set(registry.entries(group)) - before[group]:
            registry.unregister(group, entry.name)


def served(line, folder):
    """Run a command that serves a model until it prints its address, read the page, and stop it."""
    running = Running(shlex.split(line)[1:], folder)
    output = running.outputs.with_suffix(".out")
    try:
        while not (output.exists() and "\n" in output.read_text()):
            assert running.process.exitcode is None
            time.sleep(0.02)
        return urlopen(output.read_text().splitlines()[0].split()[-1], timeout=60).read().decode()
    finally:
        running.process.terminate()
        running.ended()


@pytest.mark.parametrize("page", [name for name, steps in STEPS.items() if name != "devices"])
@pytest.mark.filterwarnings("ignore:::transformers", "ignore:::peft", "ignore:::torch.jit", "ignore:Use 'content")
def test_tutorials_run(page, tmp_path, monkeypatch, capsys, unregistered, hub):
    """Steps that need an account run with a local Hub."""
    if page == "hugging-face":
        pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page}
    for mark, kind, block in STEPS[page]:
        if mark and "an account" not in mark:
            for line in commands(block) if page == "hugging-face" and find_spec("uvicorn") else ():
                assert "<form" in served(line, tmp_path)
            continue
        text = block.replace("OWNER", "me")
        if kind == "python":
            exec(compile(text, page, "exec"), names)
        for line in commands(text):
            assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)


def test_the_measured_parts_match_the_results():
    frontiers, results = frontier_page.read(), readme.stored("digits")
    for begin, part in {readme.REASONS: readme.reasons(frontiers), readme.ANSWER: readme.answer(frontiers)}.items():
        assert f"{begin}\n{part}\n{machine.END}" in TEXT
    assert f"{readme.BEGIN}\n{readme.table(results)}\n{machine.END}" in readme.TUTORIAL.read_text(encoding="utf-8")
    assert {row["seed"] for row in results["rows"]} == {0, 1, 2}


MOST_WORDS, MOST_WORDS_OF_RESULTS, MOST_PICTURES, MOST_ROWS = 30_000, 600, 3, 40


def pages_of_results():
    """Return the pages under Measured in the navigation."""
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    (entries,) = (part["Measured"] for part in navigation if "Measured" in part)
    return [page for entry in entries for page in entry.values() if page not in ("gallery.md", "method.md")]


def longest_table(text):
    """Return the number of lines of the longest table of a page."""
    return max((table.count("\n") for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)), default=0)


def test_pages_are_short():
    names = [name for name in PAGES if name.startswith("docs/") or name == "README.md"]
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    assert sum(len(text.split()) for text in texts.values()) <= MOST_WORDS
    assert {name: longest_table(text) for name, text in texts.items() if longest_table(text) > MOST_ROWS} == {}
    results = {page: texts[f"docs/{page}"] for page in pages_of_results()}
    assert len(results) >= 10
    assert {page: len(text.split()) for page, text in results.items() if len(text.split()) > MOST_WORDS_OF_RESULTS} == {}
    assert {page: text.count("![") for page, text in results.items() if text.count("![") > MOST_PICTURES} == {}


def test_the_gallery_shows_a_model_of_each_backbone_of_the_catalogue():
    released = {find_release(path.stem).facts["backbone"] for path in PRETRAINED}
    shown = {find_release(exhibit.name).facts["backbone"] for exhibit in gallery.EXHIBITS.values()}
    assert {Spec.parse(spec).name.partition("/")[0] for spec in released - shown} <= {
        Spec.parse(spec).name.partition("/")[0] for spec in shown
    }
    text = gallery.PAGE.read_text(encoding="utf-8")
    assert all(f"## {title}\n" in text and exhibit.command in text for title, exhibit in gallery.EXHIBITS.items())
    pictures = [ROOT / "docs" / name for name in re.findall(r"!\[[^\]]*\]\((.*?)\)", text)]
    assert len(pictures) >= len(gallery.EXHIBITS)
    assert [picture.name for picture in pictures if picture.stat().st_size > 60_000] == []


@pytest.mark.parametrize("page", PAGES)
def test_rows_of_tables_are_as_wide_as_their_heads(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1, table


def test_pages_of_results_begin_with_their_question():
    for page in pages_of_results():
        title, blank, question = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()[:3]
        assert (title[:2], blank) == ("# ", "")
        assert re.fullmatch(r"\*\*.+\?\*\*", question), page


def test_what_is_written_by_hand_about_the_frontiers_holds():
    pages = (ROOT / "docs" / "method.md", frontier_page.TEMPLATE)
    text = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in pages)
    frontiers = {frontier.name: frontier for frontier in frontier_page.read()}

    shares = [
        point.total / sum(share * other.total for other, share in others.items())
        for name in ("trec_transformer", "sst_transformer")
        for points in frontiers[name].algebras.values()
        for point in points
        if (others := opponents(point.weights, frontiers[name].real))
    ]
    assert f"Transformers over an algebra have {min(shares):.1f} to {max(shares):.1f} times as many weights" in text

    def by_validation(frontier):
        rows = [row | {"test": row["validation"]} for row in frontier.rows]
        return replace(frontier, rows=rows, points=best_networks(rows))

    compared = [frontier for frontier in frontiers.values() if frontier.name not in CONTROLS]
    moved = [one.name for one in compared if depends_on_size(one) is not depends_on_size(by_validation(one))]
    assert moved == ["trec_transformer"]
    assert "by validation, the TREC Transformer would be in the other group" in text

    sizes = [point.weights for point in frontiers["shakespeare"].real]
    for points in frontiers["shakespeare"].algebras.values():
        assert any(abs(point.weights - size) <= 0.05 * size for point in points for size in sizes)
    assert "on shakespeare, every algebra has a network within 5 % of a real one" in text

    ratios = [
        frontier.costs[point.net]["step_ms"] / max(frontier.costs[real.net]["step_ms"] for real in frontier.real)
        for frontier in compared
        for points in frontier.algebras.values()
        for point in points
        if len(point.values) > 1
    ]
    assert f"they take up to {max(ratios):.1f} times as long" in text

    results = json.loads((tickets.RESULTS / "shakespeare.json").read_text(encoding="utf-8"))
    for ticket in tickets.curves(results, "total")["real-128"][2:4]:
        rivals = [point for point in frontiers["shakespeare"].points if point.weights <= 1.05 * ticket.point.weights]
        assert ticket.point.mean < min(point.mean for point in rivals)
    assert "the largest real network pruned in two or three rounds, each of which trains it again, is better" in text


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


CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
SWEEPS = sorted((ROOT / "configs" / "papers").rglob("*.yaml"))
FRONTIERS = sorted((ROOT / "configs" / "frontier").glob("*.yaml"))
EQUAL_WEIGHTS = sorted((ROOT / "configs" / "tickets").glob("*.yaml"))
LOTTERIES = sorted((ROOT / "configs" / "lottery").glob("*.yaml"))
PRETRAINED = sorted((ROOT / "configs" / "pretrained").glob("*.yaml"))
TICKETS = [path for path in PRETRAINED if path.stem.endswith("-ticket")]
DEFAULTS = {"vit_digits": "vit", "resnet18_digits": "timm/resnet18"}


def options(path: Path) -> Fit:
    return build_options(Fit, yaml.safe_load(path.read_text(encoding="utf-8")))


SHORT = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.limit_test_batches", "1"]


@pytest.mark.parametrize(
    "path", sorted({*CONFIGS} - {*SWEEPS, *FRONTIERS, *EQUAL_WEIGHTS, *LOTTERIES, *PRETRAINED}), ids=lambda path: path.stem
)
def test_configurations_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "-c", str(path), *SHORT]) == 0, capsys.readouterr().err
    assert "test accuracy" in capsys.readouterr().out


CIFAR = {"in_channels": 3, "image_size": 32, "num_classes": 10}
NETWORKS = {
    "conv4_cifar10": (CIFAR, 2_425_024, 0),
    "gpt_shakespeare": ({"vocab_size": 65, "max_length": 64}, 786_432, 196_608),
    "vit_cifar10": (CIFAR, 1_192_576, 589_824),
    "vit_digits": ({"in_channels": 1, "image_size": 8, "num_classes": 10}, 197_504, 49_152),
    "vit_pneumoniamnist": ({"in_channels": 1, "image_size": 28, "num_classes": 2}, 101_568, 24_576),
}
"""Data info of each experiment, and over the reals the number of prunable weights, and of those in Q, K and V."""


@pytest.mark.parametrize("path", LOTTERIES, ids=lambda path: path.stem)
def test_experiments_compare_algebras_over_three_seeds(path):
    checked, _ = check_lottery(build_options(Lottery, yaml.safe_load(path.read_text(encoding="utf-8"))))
    assert (checked.compare[:2], checked.seeds) == (("real", "quaternion"), 3)
    name, qkv, _ = path.stem.partition("_qkv")
    options = ("qkv", "component") if qkv else ("all", "tensor")
    assert (checked.pruning.matrices, checked.pruning.scope) == options
    info, *weights = NETWORKS[name]
    net = zoo.backbone(checked.backbone, "real", **info)
    assert sum(entry.parameter.numel() for entry in prunable(net, options[0]).values()) == weights[bool(qkv)]


@pytest.mark.parametrize("path", EQUAL_WEIGHTS, ids=lambda path: path.stem)
def test_tickets_compare_real_networks_of_several_widths(path):
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    lotteries = [check_lottery(build_options(Lottery, config["base"] | network))[0] for network in config["networks"].values()]
    assert len({lottery.backbone for lottery in lotteries if lottery.compare == ("real",)}) >= 2
    assert {lottery.seeds for lottery in lotteries} == {3}
    rows = json.loads((ROOT / f"benchmarks/results/frontier/{config['rates']}.json").read_text(encoding="utf-8"))["rows"]
    best = {point.net: point.lr for point in best_networks(rows)}
    rates = {name: lottery.optimizer.lr for name, lottery in zip(config["networks"], lotteries, strict=True)}
    assert rates.items() <= best.items()


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_tables_of_papers_are_sweeps(path):
    grid = list(grid_points(yaml.safe_load(path.read_text(encoding="utf-8")), str(path)))
    rows = papers_rows.read(path)
    assert [point.name for point in grid] == [f"{row.name}-seed{seed}" for row in rows for seed in range(3)]
    assert [point.options for point in grid[::3]] == [row.config | {"seed": 0} for row in rows]


@functools.cache
def size(backbone: str, algebra: str, scope: str, embedding: str | None, info: str) -> int:
    return zoo.count(zoo.backbone(backbone, algebra, scope=scope, embedding=embedding, **json.loads(info)))["total"]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_rows_of_papers_have_valid_networks_and_data(path):
    kind = {"rotation": {"in_features": 3, "out_features": 3}, "hamilton": {"in_features": 16, "out_features": 16}}
    for config in papers_rows.read(path):
        row = build_options(Fit, config.config)
        info = kind.get(row.data, {"vocab_size": 20, "max_length": 8, "num_classes": 2, "pair": row.data in ("snli", "wikiqa")})
        assert size(row.backbone, row.algebra, row.scope, row.embedding, json.dumps(info))
        entry, spec = registry.resolve("zoo.datasets", row.data)
        assert spec.options.keys() <= set(inspect.signature(registry.load(entry)).parameters)
        for other in filter(None, config.extra.get("also", "").split(";")):
            registry.resolve("zoo.datasets", other.strip())


@pytest.mark.parametrize("path", sorted({*CONFIGS} - {*FRONTIERS, *EQUAL_WEIGHTS}), ids=lambda path: path.stem)
def test_configurations_start_with_their_command(path):
    first = path.read_text(encoding="utf-8").splitlines()[0]
    command = "sweep" if path in SWEEPS else "lottery -c" if path in {*LOTTERIES, *TICKETS} else "fit -c"
    assert re.fullmatch(rf"# zoo {command} (\S+)", first)
    assert first.endswith(path.relative_to(ROOT).as_posix())


@pytest.mark.parametrize(("name", "backbone"), DEFAULTS.items())
def test_written_out_defaults_are_correct(name, backbone):
    written = resolve(options(ROOT / "configs" / f"{name}.yaml"))
    default = resolve(Fit(backbone=backbone, algebra="quaternion"))
    for key in ("algebra", "data", "scope", "init", "optimizer", "schedule", "batch_size", "num_workers", "seed", "trainer"):
        assert getattr(written, key) == getattr(default, key), key
    info = load_data(default).info.model_kwargs
    states = []
    for spec in (written.backbone, default.backbone):
        torch.manual_seed(0)
        states.append(zoo.backbone(spec, "quaternion", **info).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("path", PRETRAINED, ids=lambda path: path.stem)
def test_pretrained_checkpoints_match_their_configurations(path):
    """The resolved specs equal those in the catalogue."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path in TICKETS:
        values = {key: value for key, value in values.items() if key not in ("compare", "rate", "rounds", "seeds")} | {
            "algebra": values["compare"][0]
        }
    effective = resolve(build_options(Fit, values))
    facts = find_release(path.stem).facts
    assert {key: getattr(effective, key) for key in ("backbone", "algebra", "data")} == {
        key: facts[key] for key in ("backbone", "algebra", "data")
    }
