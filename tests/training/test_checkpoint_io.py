"""Checkpoint files: written atomically, verified, and loaded without unpickling."""

import os
import pickle
import random
import resource
import tempfile
import time
from pathlib import Path

import pytest
import torch

from tests.errors import raises
from tests.faults.process import forked
from zoo.training.checkpoint_io import AtomicCheckpointIO, read_checkpoint

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


def test_every_flipped_bit_is_detected(path):
    data, draw = path.read_bytes(), random.Random(1)
    positions = [draw.randrange(len(data)) for _ in range(50)] + [len(data) - number for number in range(1, 34)]
    for i in positions:
        path.write_bytes(data[:i] + bytes([data[i] ^ 1 << draw.randrange(8)]) + data[i + 1 :])
        with raises("corrupt", path):
            read_checkpoint(path)


@pytest.mark.parametrize("size", [0, 1, 32, 500, -1, -32])
def test_every_truncation_is_detected(path, size):
    path.write_bytes(path.read_bytes()[:size])
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


def test_a_full_disk_raises_and_keeps_the_old_file(path):
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as refusal:
            AtomicCheckpointIO().save_checkpoint({"state_dict": {"w": torch.zeros(10**6)}}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refusal.value.filename == str(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def write_repeatedly(path: Path) -> None:
    tempfile.tempdir = "/dev/shm"
    for number in range(10**6):
        AtomicCheckpointIO().save_checkpoint({"state_dict": {"w": torch.full((10**6,), float(number))}}, path)


def test_a_killed_writer_leaves_an_intact_file_if_the_temporary_folder_is_elsewhere(tmp_path):
    path, draw = tmp_path / "x.ckpt", random.Random(2)
    for _ in range(2):
        path.unlink(missing_ok=True)
        process = forked(write_repeatedly, path)
        while not path.exists():
            assert process.exitcode is None
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
        process.kill()
        process.join()
        values = read_checkpoint(path)["state_dict"]["w"]
        assert bool((values == values[0]).all())
        assert all(file.name == path.name or file.name.startswith(f".{path.name}-") for file in tmp_path.iterdir())
