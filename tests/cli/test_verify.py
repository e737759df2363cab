"""``zoo verify``: what is whole, what is damaged, in one line each."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def run(call) -> Path:
    """A run with a model and two checkpoints."""
    words = [
        "--trainer.max_epochs=2",
        "--trainer.limit_train_batches=1",
        "--trainer.limit_val_batches=1",
        "--trainer.accelerator=cpu",
        "--run-dir=run",
    ]
    assert call("fit", "--backbone=vit(dim=16,depth=1,heads=1)", "--algebra=quaternion", *words)[0] == 0
    return Path("run")


def test_a_model_and_its_checkpoints(call, run):
    code, out, err = call("verify", run)
    lines = out.splitlines()
    checkpoints = sorted(Path("run/checkpoints").glob("*.ckpt"))
    assert (code, err) == (0, "")
    assert all(line.startswith("ok ") for line in lines)
    assert "over quaternion" in lines[0]
    named = {line.split()[1] for line in lines}
    files = {str(path) for path in run.rglob("*") if path.is_file() and path.parent.name != "model"}
    assert named == files | {"run/model"}, "every file is covered"
    Path("run/note").touch()
    assert "unchecked run/note" in call("verify", run)[1]
    assert call("verify", "run/model")[0] == 0

    for path in (Path("run/model/model.safetensors"), checkpoints[0]):
        data = path.read_bytes()
        path.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    code, out, err = call("verify", run, "--json")
    found = {row["file"]: row for row in json.loads(out)}
    assert (code, err) == (1, "")
    assert [name for name, row in found.items() if row["status"] == "damaged"] == ["run/model", str(checkpoints[0])]
    assert "model.safetensors has changed" in found["run/model"]["note"]


def test_there_is_nothing_to_verify(refused):
    assert "there is no folder 'nowhere'" in refused("verify", "nowhere")
