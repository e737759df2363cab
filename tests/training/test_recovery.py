"""Checkpoint files, and recovery of the model from the best checkpoint after a crash."""

import json
import os
import pickle
import random
import signal
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback

import zoo
from tests.errors import raises
from zoo.errors import Interrupted, Stop
from zoo.training import fit, folder
from zoo.training.folder import lock_folder
from zoo.training.resume import AtomicCheckpointIO, newest, read_checkpoint
from zoo.training.runs import recover, verify


class Crash(Callback):
    """Raises in the test, or in an epoch of training."""

    def __init__(self, epoch=None):
        self.epoch = epoch

    def on_test_start(self, trainer, module):
        raise RuntimeError("out of memory")

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == self.epoch:
            raise RuntimeError("out of memory")


def test_a_full_disk_reports_what_is_saved(options, monkeypatch):
    """While the model is saved for the first time, and again with the test metrics."""
    save, calls = fit.write_model, []

    def full(folder, *arguments):
        calls.append(folder)
        if len(calls) in (1, 3):
            raise OSError(28, "No space left on device", f"{folder.parent}/.model-abc/model.safetensors")
        save(folder, *arguments)

    monkeypatch.setattr(fit, "write_model", full)
    with pytest.raises(OSError, match="No space") as error:
        zoo.fit(**options(run_dir="run"))
    saved = "progress up to epoch 0001 is saved; resume with: zoo fit --resume run"
    assert error.value.strerror.endswith(f"; {saved}, or save the model with: zoo recover run")
    assert recover("run")["folder"] == "run/model"
    assert zoo.load("run").evaluate()
    with pytest.raises(OSError, match="No space") as error:
        zoo.fit(**options(run_dir="two"))
    saved = "the model is saved but not tested; test it with: zoo test two"
    assert error.value.strerror.endswith(f"; {saved}")
    assert (error.value.errno, error.value.filename) == (28, None)


def test_a_run_is_finished_when_its_last_file_is_written(options, monkeypatch):
    """A signal before summary.json, the last file."""
    write, paths = folder.write_text, []

    def stop(path, text):
        paths.append(path.name)
        if path.name == "summary.json":
            raise Stop(signal.SIGTERM)
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_text", stop)
        with pytest.raises(Interrupted, match="saved and tested; finish the run with: zoo fit --resume run"):
            zoo.fit(**options(run_dir="run"))
    assert Path("run/checksums.json").is_file()
    assert not Path("run/summary.json").exists()
    weights = Path("run/model/model.safetensors").read_bytes()
    again = zoo.fit(**options(run_dir="run", resume="auto"))
    assert again["metrics"] == zoo.load("run").metrics
    assert Path("run/model/model.safetensors").read_bytes() == weights
    rows = {row["file"]: row["status"] for row in verify(Path("run"))}
    assert set(rows.values()) == {"ok"}
    assert "run/summary.json" in rows
    Path("run/checksums.json").unlink()
    assert [row["file"] for row in verify(Path("run")) if row["status"] != "ok"] == ["run/checksums.json"]


def crashed(options, **chosen) -> Path:
    with pytest.raises(RuntimeError, match="out of memory"):
        zoo.fit(**options(run_dir="run", **chosen))
    return Path("run")


def best_of(run):
    return run / "checkpoints" / newest(run)[1]["zoo_state"]["best"]["file"]


def state_of(run):
    state = read_checkpoint(best_of(run))["state_dict"]
    return {name.removeprefix("net."): value for name, value in state.items() if name.startswith("net.")}


def is_best(run) -> bool:
    net = zoo.load(run).net
    return all(torch.equal(value, state_of(run)[name]) for name, value in net.state_dict().items())


def test_a_test_that_crashes_leaves_the_model(options):
    run = crashed(options, trainer={"callbacks": [Crash()]})
    assert is_best(run)
    assert json.loads((run / "model" / "manifest.json").read_text())["metrics"] == {}
    assert not (run / "summary.json").exists()
    assert not (run / ".lock").exists()
    assert zoo.load(run).evaluate()["accuracy"] > 0
    with raises("invalid", run):
        recover(run)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_best_epoch_of_a_crashed_run_is_recovered(options, corpus, kind):
    data = f"text(path='{corpus(Path('train.tsv').absolute(), 'text')}')"
    chosen = {"backbone": "fasttext(dim=8, hidden=8)", "data": data} if kind == "text" else {}
    run = crashed(options, trainer={"max_epochs": 3, "callbacks": [Crash(2)]}, **chosen)
    assert not (run / "model").exists()
    Path("train.tsv").unlink()
    best = best_of(run)
    epoch = int(best.stem.removeprefix("epoch-"))
    assert recover(run) == {"folder": str(run / "model"), "checkpoint": str(best), "epoch": epoch}
    assert is_best(run)
    assert not (run / ".lock").exists()


def test_runs_that_cannot_be_recovered(options):
    with raises("missing", "'nothing'"):
        recover("nothing")
    run = crashed(options, trainer={"max_epochs": 2, "callbacks": [Crash(1)]})
    with lock_folder(run), raises("busy", run):
        recover(run)
    with raises("invalid", "several runs", run):  # as if it were a fold
        recover(run.parent)
    best_of(run).unlink()
    with raises("missing", run):
        recover(run)


STATE = {"state_dict": {"w": torch.arange(1000.0)}, "epoch": 3, "random": random.Random(0).getstate()}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a" / "epoch-0001.ckpt"
    AtomicCheckpointIO().save_checkpoint(STATE, file)
    return file


def test_checkpoints_are_loaded_by_the_zoo_and_by_torch(path):
    for state in (read_checkpoint(path), torch.load(path, weights_only=True), AtomicCheckpointIO().load_checkpoint(path)):
        assert torch.equal(state["state_dict"]["w"], STATE["state_dict"]["w"])
        assert (state["epoch"], state["random"]) == (3, STATE["random"])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_every_flipped_bit_and_truncation_is_detected(path):
    data, draw = path.read_bytes(), random.Random(1)
    positions = [draw.randrange(len(data)) for _ in range(50)] + [len(data) - number for number in range(1, 34)]
    for i in positions:
        path.write_bytes(data[:i] + bytes([data[i] ^ 1 << draw.randrange(8)]) + data[i + 1 :])
        with raises("corrupt", path):
            read_checkpoint(path)
    for size in (0, 1, 32, 500, -1, -32):
        path.write_bytes(data[:size])
        with raises("corrupt", path):
            read_checkpoint(path)


class Payload:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_pickle_is_refused_and_not_executed(tmp_path, monkeypatch, sealed):
    monkeypatch.chdir(tmp_path)
    if sealed:  # with a valid checksum
        AtomicCheckpointIO().save_checkpoint({"state_dict": Payload()}, "x.ckpt")
    else:
        Path("x.ckpt").write_bytes(pickle.dumps(Payload()))
    with raises("corrupt", "'x.ckpt'"):
        read_checkpoint("x.ckpt")
    assert not Path("ran").exists()
