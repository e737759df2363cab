"""Two processes of which one dies: the run ends in time, with an exit code that says so, and nobody is left."""

import sys

import pytest

from tests.faults.ranks import GRACE, lose

TIMEOUT = 60


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize(("rank", "how", "when"), [(0, "kill", "start"), (1, "raise", "step")])
def test_a_lost_rank_ends_the_run(tmp_path, rank, how, when):
    ending = lose(tmp_path, rank, how, when, TIMEOUT)
    assert ending.seconds is not None, ending.output
    assert (ending.code != 0, ending.orphans, ending.model) == (True, 0, False), ending.output
    assert ending.seconds < 2 * GRACE, "nobody waits for the timeout; twice the time, for a busy machine"
