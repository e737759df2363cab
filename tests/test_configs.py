"""Configurations in configs/: they run, and written-out defaults are correct."""

import functools
import inspect
import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from zoo_experiments.lottery import check_lottery
from zoo_experiments.options import Lottery
from zoo_experiments.sweep import grid_points

import zoo
from benchmarks import papers_rows
from zoo import registry
from zoo.cli import main
from zoo.hub.sources import find_release
from zoo.pruning import prunable
from zoo.training.options import Fit, build
from zoo.training.resolve import load_data, resolve

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
SWEEPS = sorted((ROOT / "configs" / "papers").rglob("*.yaml"))
FRONTIERS = sorted((ROOT / "configs" / "frontier").glob("*.yaml"))
EQUAL_WEIGHTS = sorted((ROOT / "configs" / "tickets").glob("*.yaml"))
LOTTERIES = sorted((ROOT / "configs" / "lottery").glob("*.yaml"))
PRETRAINED = sorted((ROOT / "configs" / "pretrained").glob("*.yaml"))
TICKETS = [path for path in PRETRAINED if path.stem.endswith("-ticket")]
DEFAULTS = {"vit_digits": "vit", "resnet18_digits": "timm/resnet18"}


def options(path: Path) -> Fit:
    return build(Fit, yaml.safe_load(path.read_text(encoding="utf-8")))


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
    checked, _ = check_lottery(build(Lottery, yaml.safe_load(path.read_text(encoding="utf-8"))))
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
    lotteries = [check_lottery(build(Lottery, config["base"] | network))[0] for network in config["networks"].values()]
    assert len({lottery.backbone for lottery in lotteries if lottery.compare == ("real",)}) >= 2
    assert {lottery.seeds for lottery in lotteries} == {3}


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
        row = build(Fit, config.config)
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
    effective = resolve(build(Fit, values))
    facts = find_release(path.stem).facts
    assert {key: getattr(effective, key) for key in ("backbone", "algebra", "data")} == {
        key: facts[key] for key in ("backbone", "algebra", "data")
    }
