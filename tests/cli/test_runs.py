"""``zoo average``, ``recover`` and ``verify`` on one run."""

import json
import shutil
from pathlib import Path

import pytest

CPU = ("--trainer.accelerator", "cpu")
WORDS = "fit --backbone vit(dim=16,depth=1,heads=1) --algebra real --run-dir run --keep 2 --trainer.max_epochs 2 "
WORDS += "--trainer.limit_train_batches 2 --trainer.limit_val_batches 1"


@pytest.fixture
def run(call):
    assert call(*WORDS.split(), *CPU).code == 0
    return Path("run")


def test_average(call, refused, run):
    code, out, err = call("average", run, "--last", "2", *CPU)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("validation", "test"))]
    assert {(row[0], row[1]) for row in rows} >= {("validation", "loss"), ("test", "loss"), ("test", "accuracy")}
    assert all(len(row) == 4 for row in rows)
    assert "zoo test run/average" in out
    (loss,) = [row[3] for row in rows if row[:2] == ["test", "loss"]]
    assert json.loads(call("test", "run/average", "--json", *CPU).out)["loss"] == pytest.approx(float(loss), abs=1e-4)
    result = json.loads(call("average", run, "--last=1", "--out", "other", "--json", *CPU).out)
    assert (result["averaged"], result["folder"]) == (["epoch-0002.ckpt"], "other")
    assert "has 2 kept checkpoints" in refused("average", run, "--out", "third")
    assert "'nothing'" in refused("average", "nothing")


def test_recover(call, refused, run):
    assert "already has a model" in refused("recover", run)
    shutil.rmtree(run / "model")
    code, out, err = call("recover", run)
    assert (code, err) == (0, "")
    assert "the model of epoch" in out
    assert call("test", run, *CPU).code == 0


def test_verify(call, refused, run):
    code, out, err = call("verify", run)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert all(line.startswith("ok ") for line in lines)
    files = {str(path) for path in run.rglob("*") if path.is_file() and path.parent.name != "model"}
    assert {line.split()[1] for line in lines} == files | {"run/model"}
    assert call("verify", "run/model").code == 0
    damaged = run / "model/model.safetensors", min(run.glob("checkpoints/*.ckpt"))
    for path in damaged:
        data = path.read_bytes()
        path.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    code, out, err = call("verify", run, "--json")
    assert (code, err) == (1, "")
    assert [row["file"] for row in json.loads(out) if row["status"] == "damaged"] == ["run/model", str(damaged[1])]
    assert "'nowhere'" in refused("verify", "nowhere")
