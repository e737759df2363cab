"""Checkpoint files: written atomically, verified, and loaded without unpickling."""

import os
import pickle
import random
from pathlib import Path

import pytest
import torch

from tests.errors import raises
from zoo.training.resume import AtomicCheckpointIO, read_checkpoint

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
