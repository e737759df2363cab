"""Averages of the last checkpoints: values, metrics, and invalid calls."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import zoo
from tests.errors import raises
from zoo.training.average import average, mean
from zoo.training.checkpoint_io import AtomicCheckpointIO, read_checkpoint
from zoo.training.options import Average

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


def test_the_average_of_one_checkpoint(run):
    average(run, Average(last=1, out=str(run / "one"), trainer=CPU))
    last, net = state_of(run / "checkpoints" / "epoch-0004.ckpt"), zoo.load(run / "one").net.state_dict()
    assert all(torch.equal(value, last[name]) for name, value in net.items())


def test_integers_are_the_last_ones_and_equal_floats_are_unchanged(tmp_path):
    paths = [tmp_path / f"epoch-000{number}.ckpt" for number in (1, 2, 3)]
    for number, path in enumerate(paths):
        state = {"w": torch.tensor([float(number), 1 / 3]), "count": torch.tensor(10 * number + 1)}
        named = {f"net.{key}": value for key, value in state.items()}
        AtomicCheckpointIO().save_checkpoint({"state_dict": named, "zoo_run": {}, "zoo_state": {}}, path)
    result = mean(paths, state)
    assert torch.equal(result["w"], torch.tensor([1.0, 1 / 3]))
    assert (int(result["count"]), result["count"].dtype) == (21, torch.int64)


def test_batch_norm_and_data_without_a_test_split(options, archive):
    chosen = {"backbone": "timm/resnet10t", "algebra": "real", "data": f"npz(path='{archive('train', 'val')}')"}
    run = Path(zoo.fit(**options(keep=2, trainer={"max_epochs": 2, "limit_val_batches": 1}, **chosen))["run_dir"])
    made = average(run, Average(last=2, trainer=CPU))
    assert made["metrics"] == {}
    assert made["validation"]["loss"] > 0
    net, (first, second) = (
        zoo.load(run / "average").net.state_dict(),
        (state_of(run / "checkpoints" / name) for name in made["averaged"]),
    )
    count, var = "bn1.num_batches_tracked", "bn1.running_var"
    state = {name.removeprefix("net."): value for name, value in net.items()}
    assert torch.equal(state[count], second[count])
    assert torch.allclose(state[var], (first[var] + second[var]) / 2)


def test_the_tokenizer_is_copied(options, corpus):
    path = corpus(Path("train.tsv"), "text")
    chosen = {"backbone": "fasttext", "algebra": "real", "data": f"text(path='{path}')"}
    run = Path(zoo.fit(**options(keep=2, trainer={"max_epochs": 2}, **chosen))["run_dir"])
    average(run, Average(last=2, trainer=CPU))
    assert (run / "average" / "tokenizer.json").read_bytes() == (run / "model" / "tokenizer.json").read_bytes()
    (row,) = zoo.load(run / "average").predict(["a good film"])
    assert row["label"] in ("yes", "no")


def test_invalid_calls_are_refused_and_write_nothing(run, options, archive):
    before = sorted(run.rglob("*"))
    other = zoo.fit(**options(keep=2, algebra="complex", trainer={"max_epochs": 2}))["run_dir"]
    checkpoints = run / "checkpoints"
    third, fourth = (checkpoints / f"epoch-000{number}.ckpt" for number in (3, 4))
    whole, state = third.read_bytes(), read_checkpoint(fourth)
    del state["state_dict"]["net.head.bias"]

    def refused(code, *named, last=2):
        with raises(code, *named):
            average(run, Average(last=last, trainer=CPU))
        assert sorted(run.rglob("*")) == before

    refused("invalid", "--last 8", "has 3 kept checkpoints", "--keep 8", "--last 3", last=8)
    refused("invalid", "--last 0", last=0)
    shutil.copy(Path(other) / "checkpoints" / "epoch-0002.ckpt", third)
    refused("mismatch", "epoch-0003.ckpt")
    AtomicCheckpointIO().save_checkpoint(state, third)
    refused("mismatch", "epoch-0003.ckpt")
    third.write_bytes(b"nothing")
    refused("corrupt", "epoch-0003.ckpt")
    third.write_bytes(whole)
    (run / "summary.json").unlink()
    before.remove(run / "summary.json")
    refused("failed", "summary.json")
    (run / "average").mkdir()
    before = sorted(run.rglob("*"))
    refused("conflict", "average", "--out")
    for path in checkpoints.glob("epoch-*"):
        path.unlink()
    with raises("invalid", "--last 1", "has 0 kept checkpoints", "--keep 2"):
        average(run, Average(last=1, out="elsewhere", trainer=CPU))


def test_an_interruption_leaves_nothing(run, monkeypatch):
    before = sorted(run.rglob("*"))

    def interrupted(folder, **options):
        if Path(folder) != run:
            raise KeyboardInterrupt
        return zoo.load(folder, **options)

    monkeypatch.setattr("zoo.training.average.load", interrupted)
    with pytest.raises(KeyboardInterrupt):
        average(run, Average(last=2, trainer=CPU))
    assert sorted(run.rglob("*")) == before
