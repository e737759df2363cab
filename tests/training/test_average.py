"""Averages of the last checkpoints: values, metrics, and invalid calls."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import zoo
from tests.errors import raises
from zoo.training.options import Average
from zoo.training.resume import AtomicCheckpointIO
from zoo.training.runs import _mean, average

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
    refused("invalid", "--last 0", last=0)
    shutil.copy(other, third)
    refused("mismatch", "epoch-0003.ckpt")
    third.write_bytes(b"nothing")
    refused("corrupt", "epoch-0003.ckpt")
    (run / "average").mkdir()
    before = sorted(run.rglob("*"))
    refused("conflict", "average", "--out")
