"""Every file in configs/ runs, and the files that write defaults out write the right ones."""

import re
from pathlib import Path

import pytest
import torch
import yaml

import zoo
from zoo.cli import main
from zoo.options import Fit, build
from zoo.runs.resolve import load_data, resolve

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
DEFAULTS = {"vit_digits": "vit", "resnet18_digits": "timm/resnet18"}


def options(path: Path) -> Fit:
    return build(Fit, yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_file_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    short = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.limit_test_batches", "1"]
    assert main(["fit", "-c", str(path), *short]) == 0, capsys.readouterr().err
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_file_says_how_to_run_it(path):
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.fullmatch(r"# zoo fit -c (\S+)", first)
    assert first.endswith(path.relative_to(ROOT).as_posix())


@pytest.mark.parametrize(("name", "backbone"), DEFAULTS.items())
def test_the_defaults_are_written_out(name, backbone):
    written = resolve(options(ROOT / "configs" / f"{name}.yaml"))
    default = resolve(Fit(backbone=backbone, algebra="quaternion"))
    for key in ("algebra", "data", "scope", "init", "optimizer", "schedule", "batch_size", "num_workers", "seed", "trainer"):
        assert getattr(written, key) == getattr(default, key), key
    facts = load_data(default).facts.keywords
    states = []
    for spec in (written.backbone, default.backbone):
        torch.manual_seed(0)
        states.append(zoo.backbone(spec, "quaternion", **facts).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
