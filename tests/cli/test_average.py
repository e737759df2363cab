"""``zoo average`` from the command line: a table beside the run's own numbers, JSON, and one line for what is wrong."""

import json

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
    assert "kept 2 checkpoints of 8" in refused("average", run)
    assert "last" in refused("average", run, "--last", "many")
    assert "there is no folder 'nothing'" in refused("average", "nothing")
    assert "unknown flag --data" in refused("average", run, "--data", "digits")
    assert "run" in refused("average").lower()
