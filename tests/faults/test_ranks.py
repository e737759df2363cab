"""If one of two processes dies, the run ends in time with a nonzero exit code and no process left."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.ranks import GRACE, lose

TIMEOUT = 60


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize(("rank", "how", "when"), [(0, "kill", "start"), (1, "raise", "step"), (1, "kill", "step")])
@pytest.mark.slow
def test_a_lost_rank_ends_the_run(tmp_path, rank, how, when):
    ending = lose(tmp_path, rank, how, when, TIMEOUT)
    assert ending.seconds is not None, ending.output
    assert (0 in ending.codes, ending.orphans, ending.model) == (False, 0, False), ending.output
    if (rank, how) == (1, "kill"):
        assert "InputError: process 1 ended with signal 9; no checkpoint was written yet" in ending.output
    assert ending.seconds < 2 * GRACE, "must not wait for the timeout; twice the grace period, for a busy machine"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.slow
def test_a_stopped_rank_ends_the_run(tmp_path):
    ending = lose(tmp_path, 1, "stop", "step", TIMEOUT)
    assert ending.seconds is not None, ending.output
    assert (ending.codes, ending.orphans, ending.model) == ([1], 0, False), ending.output
    assert "InputError: another process ended or does not answer" in ending.output
    assert "no checkpoint was written yet" in ending.output
    assert TIMEOUT - 1 < ending.seconds < TIMEOUT + 2 * GRACE


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.slow
def test_a_process_that_cannot_connect_ends_with_rank_0(tmp_path):
    ending = lose(tmp_path, 1, "hang", "start", 5)
    assert (ending.codes, ending.model) == ([1], False), ending.output
    assert "did not connect within 5 s" in ending.output
    assert running_in(tmp_path) == []


def running_in(folder):
    """Return the command lines of the processes whose working directory is a folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                commands.append((process / "cmdline").read_bytes())
    return commands
