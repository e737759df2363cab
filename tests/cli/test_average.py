"""``zoo average`` and ``zoo recover``: a table beside the run's own numbers, JSON, and one line for what is wrong."""

import json
import shutil

import pytest

RUN = ("--backbone", "vit(dim=32,depth=1)", "--algebra", "real", "--run_dir", "run", "--keep", "2")
SMALL = ("--trainer.max_epochs", "2", "--trainer.limit_train_batches", "2", "--trainer.accelerator", "cpu")


@pytest.fixture
def run(call):
    assert call("fit", *RUN, *SMALL).code == 0
    return "run"


def test_the_mean_beside_the_run(call, run, tmp_path):
    code, out, err = call("average", run, "--last", "2", "--trainer.accelerator", "cpu")
    assert (code, err) == (0, "")
    assert "mean of 2" in out
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("validation", "test"))]
    assert {(row[0], row[1]) for row in rows} >= {("validation", "loss"), ("test", "loss"), ("test", "accuracy")}
    assert all(len(row) == 4 for row in rows)
    assert "zoo test run/average" in out
    assert (tmp_path / "run" / "average" / "model.safetensors").is_file()
    code, out, err = call("test", "run/average", "--json", "--trainer.accelerator", "cpu")
    assert (code, err) == (0, "")
    (loss,) = [row[3] for row in rows if row[:2] == ["test", "loss"]]
    assert json.loads(out)["loss"] == pytest.approx(float(loss), abs=1e-4)


def test_as_json(call, run):
    code, out, err = call("average", run, "--last=1", "--out", "other", "--json", "--trainer.accelerator", "cpu")
    assert (code, err) == (0, "")
    assert json.loads(out)["averaged"] == ["epoch-0002.ckpt"]
    assert json.loads(out)["folder"] == "other"


def test_what_is_refused(refused, run):
    assert "has 2 kept checkpoints, not 8" in refused("average", run)
    assert "last" in refused("average", run, "--last", "many")
    assert "there is no folder 'nothing'" in refused("average", "nothing")
    assert "one device, not on --trainer.devices 2" in refused("average", run, "--trainer.devices", "2")
    assert "unknown flag --data" in refused("average", run, "--data", "digits")
    assert "run" in refused("average").lower()


def test_a_crashed_run_is_recovered(call, refused, run, tmp_path):
    assert "has its model: there is nothing to recover" in refused("recover", run)
    shutil.rmtree(tmp_path / run / "model")
    code, out, err = call("recover", run)
    assert (code, err) == (0, "")
    assert "the model of epoch" in out
    assert call("test", run).code == 0
    shutil.rmtree(tmp_path / run / "model")
    assert json.loads(call("recover", run, "--json").out)["folder"] == "run/model"
    assert "there is no run folder 'nowhere'" in refused("recover", "nowhere")
