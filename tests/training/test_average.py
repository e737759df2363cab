"""Averages of the last checkpoints, and the exponential moving average: formulas, use in validation and models."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from torch import nn

import zoo
from tests.errors import raises
from zoo.training.options import Average
from zoo.training.resume import AtomicCheckpointIO, newest
from zoo.training.runs import _mean, average, recover
from zoo.training.trainer import moving_average

CPU = {"accelerator": "cpu"}


def state_of(path):
    state = torch.load(path, weights_only=True)["state_dict"]
    return {name.removeprefix("net."): value for name, value in state.items()}


@pytest.fixture
def run(options):
    """A run of four epochs that keeps three checkpoints."""
    return Path(zoo.fit(**options(keep=3, trainer={"max_epochs": 4}))["run_dir"])


def test_the_average_is_saved_and_measured(run):
    made = average(run, Average(last=2, trainer=CPU))
    assert made["folder"] == str(run / "average")
    assert made["averaged"] == ["epoch-0003.ckpt", "epoch-0004.ckpt"]
    third, fourth = (state_of(run / "checkpoints" / name) for name in made["averaged"])
    net = zoo.load(run / "average").net.state_dict()
    assert net.keys() == third.keys()
    assert all(torch.allclose(value, (third[name] + fourth[name]) / 2, atol=1e-7) for name, value in net.items())
    assert not torch.equal(net["head.weight"], fourth["head.weight"])
    for split, stage in (("validation", "val"), ("metrics", "test")):
        assert made[split] == pytest.approx(zoo.load(run / "average").evaluate(None, stage, trainer=CPU))
    manifest = json.loads((run / "average" / "manifest.json").read_text())
    assert {key: manifest[key] for key in ("averaged", "validation", "metrics")} == {
        key: made[key] for key in ("averaged", "validation", "metrics")
    }
    summary = json.loads((run / "summary.json").read_text())
    assert made["before"]["metrics"] == pytest.approx(summary["metrics"], abs=1e-6)
    assert made["before"]["validation"] == zoo.load(run).evaluate(None, "val", trainer=CPU)
    assert zoo.load(run / "average").config == zoo.load(run).config
    assert "the mean of the last 2 checkpoints" in (run / "average" / "README.md").read_text()
    assert "the mean of" not in (run / "model" / "README.md").read_text()
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_a_recovered_run_is_averaged(run):
    net = average(run, Average(last=2, trainer=CPU))["validation"]
    for name in ("model", "average"):
        shutil.rmtree(run / name)
    (run / "summary.json").unlink()
    recover(run)
    made = average(run, Average(last=2, trainer=CPU))
    assert (made["validation"], made["metrics"]) == (net, {})
    assert zoo.load(run / "average").config.versions == zoo.load(run).config.versions


def test_integers_are_the_last_ones_and_equal_floats_are_unchanged(tmp_path):
    paths = [tmp_path / f"epoch-000{number}.ckpt" for number in (1, 2, 3)]
    for number, path in enumerate(paths):
        state = {"w": torch.tensor([float(number), 1 / 3]), "count": torch.tensor(10 * number + 1)}
        named = {f"net.{key}": value for key, value in state.items()}
        AtomicCheckpointIO().save_checkpoint({"state_dict": named, "zoo_run": {}, "zoo_state": {}}, path)
    result = _mean(paths, state)
    assert torch.equal(result["w"], torch.tensor([1.0, 1 / 3]))
    assert (int(result["count"]), result["count"].dtype) == (21, torch.int64)


def test_the_tokenizer_is_copied(options, corpus):
    path = corpus(Path("train.tsv"), "text")
    chosen = {"backbone": "fasttext", "algebra": "real", "data": f"text(path='{path}')"}
    run = Path(zoo.fit(**options(keep=2, trainer={"max_epochs": 2}, **chosen))["run_dir"])
    average(run, Average(last=2, trainer=CPU))
    assert (run / "average" / "tokenizer.json").read_bytes() == (run / "model" / "tokenizer.json").read_bytes()
    (row,) = zoo.load(run / "average").predict(["a good film"])
    assert row["label"] in ("yes", "no")


def test_invalid_calls_are_refused_and_write_nothing(run, options):
    before = sorted(run.rglob("*"))
    third = run / "checkpoints" / "epoch-0003.ckpt"
    other = zoo.fit(**options(algebra="complex"))["checkpoint"]

    def refused(code, *named, last=2):
        with raises(code, *named):
            average(run, Average(last=last, trainer=CPU))
        assert sorted(run.rglob("*")) == before

    refused("invalid", "--last 8", "has 3 kept checkpoints", "--keep", last=8)
    refused("invalid", "last=0", last=0)
    shutil.copy(other, third)
    refused("mismatch", "epoch-0003.ckpt")
    third.write_bytes(b"nothing")
    refused("corrupt", "epoch-0003.ckpt")
    (run / "average").mkdir()
    before = sorted(run.rglob("*"))
    refused("conflict", "average", "--out")


DECAY = 0.9


class Buffers(LightningModule):
    """A weight, constant and changing buffers of floats and integers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("fixed", torch.tensor([0.1, 0.7, 1 / 3]))
        self.register_buffer("index", torch.arange(50))
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("count", torch.tensor(0))


def test_floats_are_averaged_and_integers_are_copied():
    net, callback = Buffers(), moving_average(DECAY)
    callback.setup(None, net, "fit")
    mean, weights = None, []
    for step in range(300):
        with torch.no_grad():
            net.weight += torch.randn(2)
            net.mean.fill_(step)
            net.count += 1
        weights.append(net.weight.detach().double().clone())
        callback._average_model.update_parameters(net)
        mean = weights[0] if mean is None else DECAY * mean + (1 - DECAY) * weights[-1]
    average = callback._average_model.module
    assert torch.allclose(average.weight.double(), mean, rtol=1e-4, atol=1e-4)
    assert 280 < float(average.mean) < 298  # lags behind 299
    assert torch.equal(average.fixed, net.fixed)
    assert torch.equal(average.index, torch.arange(50))
    assert int(average.count) == 300


# --- runs ---


class Steps(Callback):
    """Records the weights after every optimizer step and in validation."""

    def __init__(self):
        self.trained, self.measured = [], []

    def weights(self, module):
        return nn.utils.parameters_to_vector(module.net.parameters()).detach().clone()

    def on_train_batch_end(self, trainer, module, *args):
        if trainer.global_step > len(self.trained):
            self.trained.append(self.weights(module))

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        if batch_idx == 0:
            self.measured.append(self.weights(module))


def mean_of(weights):
    mean = weights[0]
    for later in weights[1:]:
        mean = DECAY * mean + (1 - DECAY) * later
    return mean


def saved_state(path):
    state = torch.load(path, weights_only=True)["state_dict"]
    return {name.removeprefix("net."): value for name, value in state.items()}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_average_is_validated_and_saved(options, accumulate):
    steps = Steps()
    trainer = {"max_epochs": 3, "limit_train_batches": 4, "callbacks": [steps], "accumulate_grad_batches": accumulate}
    summary = zoo.fit(**options(ema=DECAY, optimizer={"lr": 0.05}, schedule={"name": "constant"}, trainer=trainer))
    per_epoch = 4 // accumulate
    assert len(steps.trained) == 3 * per_epoch
    for epoch, measured in enumerate(steps.measured, 1):
        expected = mean_of(steps.trained[: epoch * per_epoch])
        assert torch.allclose(measured, expected, atol=1e-5)
        assert not torch.allclose(measured, steps.trained[epoch * per_epoch - 1], atol=1e-3)
    best = newest(Path(summary["run_dir"]))[1]["zoo_state"]["best"]["epoch"] - 1
    net = zoo.load(summary["run_dir"]).net
    assert torch.allclose(nn.utils.parameters_to_vector(net.parameters()), steps.measured[best], atol=1e-6)
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in saved_state(summary["checkpoint"]).items())
