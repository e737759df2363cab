"""Checkpoint files: whole or not there, every flipped bit found, nothing unpickled."""

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
from zoo.training.checkpoint_io import RUN_ID, AtomicCheckpointIO, read_checkpoint, read_run_id, write_run_id

STATE = {"state_dict": {"w": torch.arange(1000.0)}, "epoch": 3, "random": random.Random(0).getstate()}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a" / "epoch-0001.ckpt"
    AtomicCheckpointIO().save_checkpoint(STATE, file)
    return file


def test_what_is_written_is_read_by_us_and_by_torch(path):
    for found in (read_checkpoint(path), torch.load(path, weights_only=True), AtomicCheckpointIO().load_checkpoint(path)):
        assert torch.equal(found["state_dict"]["w"], STATE["state_dict"]["w"])
        assert (found["epoch"], found["random"]) == (3, STATE["random"])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_every_flipped_bit_is_found(path):
    data, draw = path.read_bytes(), random.Random(1)
    places = [draw.randrange(len(data)) for _ in range(150)] + [len(data) - number for number in range(1, 78)]
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :])
        with raises("corrupt", path):
            read_checkpoint(path)


@pytest.mark.parametrize("size", [0, 1, 75, 76, 77, 500, -1, -76, -77])
def test_every_truncation_is_found(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with raises("corrupt", path):
        read_checkpoint(path)


class Payload:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_foreign_pickle_is_refused_and_not_run(tmp_path, monkeypatch, sealed):
    monkeypatch.chdir(tmp_path)
    if sealed:  # whoever writes a file can write its checksum, too
        AtomicCheckpointIO().save_checkpoint({"state_dict": Payload()}, "x.ckpt")
    else:
        Path("x.ckpt").write_bytes(pickle.dumps(Payload()))
    with raises("corrupt", "'x.ckpt'"):
        read_checkpoint("x.ckpt")
    assert not Path("ran").exists()


def test_something_else_and_nothing_are_refused(tmp_path):
    AtomicCheckpointIO().save_checkpoint([1], tmp_path / "list.ckpt")
    with raises("corrupt", "state_dict"):
        read_checkpoint(tmp_path / "list.ckpt")
    with raises("failed", "none.ckpt", "No such file"):
        read_checkpoint(tmp_path / "none.ckpt")


def test_a_disk_that_is_full_leaves_the_old_file_and_says_so(path):
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


def test_a_folder_that_cannot_be_written_to_is_no_success(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        AtomicCheckpointIO().save_checkpoint(STATE, tmp_path / "file" / "x.ckpt")


def write_for_ever(path: Path) -> None:
    tempfile.tempdir = "/dev/shm"
    for number in range(10**6):
        AtomicCheckpointIO().save_checkpoint({"state_dict": {"w": torch.full((10**6,), float(number))}}, path)


def test_a_writer_that_is_killed_leaves_a_whole_file_wherever_the_temporary_folder_is(tmp_path):
    path, draw = tmp_path / "x.ckpt", random.Random(2)
    for _ in range(2):
        path.unlink(missing_ok=True)
        process = forked(write_for_ever, path)
        while not path.exists():
            assert process.exitcode is None
            time.sleep(0.01)
        time.sleep(draw.random() * 0.3)
        process.kill()
        process.join()
        values = read_checkpoint(path)["state_dict"]["w"]
        assert bool((values == values[0]).all())
        assert all(file.name == path.name or file.name.startswith(f".{path.name}-") for file in tmp_path.iterdir())


def test_every_flipped_bit_of_a_run_id_is_noticed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    write_run_id(tmp_path, "0123456789abcdef" * 2)
    assert read_run_id(tmp_path) == "0123456789abcdef" * 2
    content = (tmp_path / RUN_ID).read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / RUN_ID).write_bytes(bytes(changed))
        assert read_run_id(tmp_path) is None
