"""The files, summary and output of a small run; repeating and testing it."""

import csv
import importlib.metadata
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import zoo
from zoo.backbones import build
from zoo.cli import main
from zoo.data import ready
from zoo.data.images import digits
from zoo.nn import Layers
from zoo.training.fit import Extension, train_run
from zoo.training.options import Fit
from zoo.training.resolve import plan_run
from zoo.training.resume import newest
from zoo.training.session import start_session

WORDS = ("fit", "--backbone", "vit(dim=32,depth=1)", "--algebra", "quaternion", "--data", "digits")
WORDS = (*WORDS, "--trainer.max_epochs", "2", "--trainer.accelerator", "cpu")


def call(*words: object) -> tuple[int, str, str]:
    """Call ``zoo`` and return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """The working directory and output of the run of this module."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, out, err = call(*WORDS)
    assert code == 0, err
    return folder, out, err


@pytest.fixture(scope="module")
def run(started) -> Path:
    (run,) = (started[0] / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def summary(run):
    return json.loads((run / "summary.json").read_text())


@pytest.fixture(scope="module")
def net(run):
    return zoo.load(run).net


# --- the folder ---


def test_the_files_of_a_run(run):
    assert run.name == "vit-depth1-dim32-quaternion-digits-seed0"
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    events = {name for name in names if name.startswith("tensorboard/")}
    model = {f"model/{name}" for name in ("config.json", "model.safetensors", "manifest.json", "README.md")}
    checkpoints = {f"checkpoints/{name}" for name in ("epoch-0001.ckpt", "epoch-0002.ckpt")}
    assert names - events == {"config.yaml", "metrics.csv", "summary.json", "checksums.json"} | checkpoints | model
    written = EventAccumulator(str(run / "tensorboard")).Reload()
    assert {"train_loss", "val_loss", "val_accuracy", "test_accuracy"} <= set(written.Tags()["scalars"])
    assert len(written.Scalars("val_loss")) == 2


def test_the_metrics_of_every_epoch_are_in_the_table(run, summary):
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    by_epoch = [row for row in rows if row["val_loss"]]
    assert [row["epoch"] for row in by_epoch] == ["0", "1"]
    assert all(0 <= float(row["val_accuracy"]) <= 1 for row in by_epoch)
    assert float(by_epoch[1]["val_loss"]) < float(by_epoch[0]["val_loss"])
    assert len([row for row in rows if row["train_loss"]]) == 2
    (test,) = [row for row in rows if row["test_accuracy"]]
    assert float(test["test_accuracy"]) == pytest.approx(summary["metrics"]["accuracy"])


UNSET = ("betas", "eps", "mup_base_width")


def test_the_configuration_is_complete(run):
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["backbone"] == "vit(depth=1, dim=32)"
    assert config["optimizer"] == {"name": "adamw", "lr": 0.002, "weight_decay": 0.05} | dict.fromkeys(UNSET)
    assert config["trainer"] == {"max_epochs": 2, "accelerator": "cpu"}
    assert "run_dir" not in config
    assert zoo.registry.build_options(zoo.training.options.Fit, config).seed == 0


# --- summary.json ---

KEYS = {"backbone", "algebra", "data", "task", "parameters", "metrics", "seconds", "seed", "epochs", "checkpoint", "versions"}
KEYS |= {"device", "data_sha256", "scope", "init", "embedding", "vectors", "vectors_found", "run_dir"}
KEYS |= {"resumed_from", "stayed_real", "teacher", "validation", "undefined"}


def test_the_summary(summary, run, net):
    assert summary.keys() == KEYS
    expected = {"backbone": "vit(depth=1, dim=32)", "algebra": "quaternion", "data": "digits", "scope": "all", "seed": 0}
    expected |= {"init": "variance", "epochs": 2, "device": "cpu", "task": "image_classification"}
    assert {key: summary[key] for key in expected} == expected
    assert 0 < summary["seconds"] < 600
    assert Path(summary["run_dir"]).name == run.name
    assert summary["metrics"].keys() == {"loss", "accuracy", "f1"}
    assert 0.15 < summary["metrics"]["accuracy"] <= 1  # chance is 0.1
    assert 0 < summary["metrics"]["loss"] < 2.3  # chance is ln 10
    info = ready(digits()).info
    assert summary["data_sha256"] == info.sha256
    for name in ("hypercomplex-zoo", "torch", "lightning", "torchmetrics", "timm"):
        assert summary["versions"][name] == importlib.metadata.version(name)
    total, twin = zoo.count(net)["total"], zoo.count(zoo.backbone("vit(dim=32,depth=1)", "real", **info.model_kwargs))["total"]
    assert summary["parameters"] == {"total": total, "embedding": 0, "real_twin": twin}
    assert total < 0.4 * twin


def test_the_best_checkpoint_is_the_model(summary, run, net):
    best = newest(run)[1]["zoo_state"]["best"]["file"]
    assert Path(summary["checkpoint"]) == Path(summary["run_dir"]) / "checkpoints" / best
    state = torch.load(run / "checkpoints" / best, weights_only=True)["state_dict"]
    assert all(torch.equal(state[f"net.{name}"], value) for name, value in net.state_dict().items())


def test_a_fit_builds_its_network_and_the_real_twin(tmp_path, monkeypatch):
    """Any others are outlines, which check sizes without memory before the network is built."""
    devices = []

    class Counted(Layers):
        def __init__(self, *arguments):
            devices.append(torch.empty(0).device.type)
            super().__init__(*arguments)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build, "Layers", Counted)
    trainer = {"max_epochs": 1, "accelerator": "cpu", "limit_train_batches": 1, "limit_val_batches": 1}
    planned = plan_run(Fit("vit(dim=24,depth=1,heads=2)", "quaternion", "digits", trainer=trainer, run_dir="run"))
    devices.clear()
    with start_session(planned) as session:
        train_run(planned, session, Extension())
    assert devices == ["meta", "cpu", "meta"]  # an outline, the network, and the twin


# --- output ---


def test_the_output(started, run, summary):
    _, out, err = started
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "digits: 1,257 train, 360 test, 180 val images"
    assert lines[1].startswith("epoch 1/2  train_loss ")
    assert lines[2].startswith("epoch 2/2  train_loss ")
    assert f"{summary['parameters']['total']:,}" in out
    assert f"{summary['parameters']['real_twin']:,}" in out
    assert f"test accuracy   {summary['metrics']['accuracy']:.4f}".split()[-1] in out
    assert f"zoo test runs/{run.name}" in out
    assert f"zoo predict runs/{run.name}" in out
    assert f"zoo fit -c runs/{run.name}/config.yaml" in out


# --- repeating ---


@pytest.fixture(scope="module")
def again(run, tmp_path_factory):
    """Two repetitions of the run from its config.yaml, and one with another seed."""
    folder = tmp_path_factory.mktemp("again")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in ((), (), ("--seed", "1")):
            assert call("fit", "-c", run / "config.yaml", *words)[0] == 0
    return folder / "runs"


def test_the_configuration_repeats_the_run_bit_for_bit_unless_the_seed_changes(run, summary, again):
    second = again / f"{run.name}-2"
    other = again / run.name.replace("seed0", "seed1")
    assert {path.name for path in again.iterdir()} == {run.name, second.name, other.name}
    for same in (again / run.name, second):
        assert json.loads((same / "summary.json").read_text())["metrics"] == summary["metrics"]
        assert (same / "model" / "model.safetensors").read_bytes() == (run / "model" / "model.safetensors").read_bytes()
        assert (same / "config.yaml").read_text() == (run / "config.yaml").read_text()
    changed = json.loads((other / "summary.json").read_text())
    assert (changed["seed"], changed["data_sha256"]) == (1, summary["data_sha256"])
    assert changed["metrics"] != summary["metrics"]


# --- testing ---


def test_testing_reproduces_the_summary_and_writes_nothing(run, summary, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    code, out, err = call("test", run, "--json", "--trainer.accelerator", "cpu")
    assert (code, err) == (0, "")
    measured = json.loads(out)
    assert measured["accuracy"] == summary["metrics"]["accuracy"]
    assert measured == pytest.approx(summary["metrics"], abs=1e-6)  # other batch size
    assert f"test accuracy  {summary['metrics']['accuracy']:.4f}" in call("test", run / "model")[1].splitlines()
    with (run / "metrics.csv").open() as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file) if row["val_loss"]]
    assert json.loads(call("validate", run, "--json")[1])["loss"] == pytest.approx(min(losses), abs=1e-6)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert list(tmp_path.iterdir()) == []


# --- other data ---


def test_data_without_a_test_split(options, archive, tmp_path, capsys):
    path = archive("train")
    words = ["--backbone=vit(dim=16,depth=1,heads=1)", "--algebra=complex", f"--data=npz(path='{path}')"]
    code, out, err = call("fit", *words, "--trainer.max_epochs=1", "--run-dir", tmp_path / "run")
    assert (code, err) == (0, "")
    assert "no test split" in out
    assert "36 train, 4 val images (val held out of train)" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["metrics"] == {}
    assert "(no test split)" in (tmp_path / "run" / "model" / "README.md").read_text()
    code, _, err = call("test", tmp_path / "run")
    assert code == 2
    assert "no test split" in err
    assert call("validate", tmp_path / "run")[0] == 0


# --- from Python ---


def test_every_option_reaches_the_run(options, tmp_path):
    changes = {"scope": "attention", "init": "polar", "seed": 3, "batch_size": 8, "run_dir": str(tmp_path / "run")}
    optimizer = {"name": "adamw", "lr": 0.01, "weight_decay": 0.0, "betas": [0.8, 0.9], "eps": 1e-6, "mup_base_width": 16}
    changes |= {"optimizer": optimizer}
    changes |= {"schedule": {"name": "linear", "warmup": 0.0, "floor": 0.1}, "label_smoothing": 0.1, "ema": 0.5, "keep": 2}
    made = zoo.fit(**options(**changes))
    assert (made["scope"], made["init"], made["seed"]) == ("attention", "polar", 3)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert {key: config[key] for key in changes if key != "run_dir"} == {k: v for k, v in changes.items() if k != "run_dir"}
    full = zoo.backbone("vit(dim=32,depth=1)", "quaternion", **ready(digits()).info.model_kwargs)
    assert made["parameters"]["total"] > zoo.count(full)["total"]
    assert zoo.count(zoo.load(tmp_path / "run").net)["total"] == made["parameters"]["total"]
