"""Untrusted model folders: no code runs, memory and time stay small, and one line reports the problem."""

import pickle
import time
from pathlib import Path
from shutil import copytree

import pytest
import torch

import zoo
from tests.faults.hostile import CORPUS, HARMLESS, Payload, seal, write_sound
from zoo.errors import InputError


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "model"
    write_sound(folder)
    zoo.load(folder).predict(torch.zeros(1, 8, 8))  # imports at first use are not measured below
    return folder


def peak() -> int:
    """Return the peak memory since `reset` in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def reset() -> int:
    """Reset the peak memory, and return the current memory."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure memory")
@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_folder_is_refused(sound, tmp_path, name):
    folder, marker = copytree(sound, tmp_path / "model"), tmp_path / "ran"
    CORPUS[name](folder, marker)
    seal(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    before, start = reset(), time.process_time()
    if name in HARMLESS:
        zoo.load(folder).predict(torch.zeros(1, 8, 8))
    else:
        with pytest.raises(InputError) as error:
            zoo.load(folder)
        assert "\n" not in str(error.value)
        assert str(error.value).isprintable()
    seconds, memory = time.process_time() - start, peak() - before
    assert not marker.exists()
    assert memory < 2 * size + 50 * 2**20, f"{memory / 2**20:.0f} MiB for {size / 2**20:.1f}"
    assert seconds < 5, "must be refused quickly"


def test_the_payload_of_the_pickles_is_live(tmp_path):
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()
