"""Damaged files of a run are detected and named, and killed runs resume bit for bit."""

import random
import sys

import pytest

from tests.faults import damage
from tests.faults.kills import Case, Rounds, kill_and_resume, undisturbed
from tests.faults.runs import write_data

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are measured in /proc")


def test_damage_is_detected(tmp_path):
    damage.make_runs(tmp_path)
    run, other = tmp_path / "one", tmp_path / "other"
    for way, count in ((damage.flip, 40), (damage.truncate, 10), (damage.zero, 10)):
        assert [row for row in damage.damaged(run, way, count) if not row[-1]] == []
    assert [row for row in damage.resumed_flips(tmp_path / "part", 6) if not row[-1]] == []
    swapped = [*damage.swapped(run, other)]
    assert "model.safetensors" in [path.name for path, _ in swapped]
    assert [row for row in swapped if not row[-1]] == []


@pytest.mark.parametrize("kind", ["images", pytest.param("text", marks=pytest.mark.slow)])
def test_a_killed_run_resumes(tmp_path, kind):
    write_data(tmp_path)
    case, draw = Case(kind), random.Random(kind)
    whole = undisturbed(case, tmp_path)
    killed = [kill_and_resume(case, whole, tmp_path, draw, "run") for _ in range(3)]
    assert [result for result in killed if result.wrong] == []


@pytest.mark.slow
def test_killed_rounds_of_lottery_tickets_resume(tmp_path):
    case, draw = Rounds("images"), random.Random(3)
    whole = undisturbed(case, tmp_path)
    assert len(whole.made) == 2 * 7 + 6
    killed = [kill_and_resume(case, whole, tmp_path, draw, "run") for _ in range(3)]
    assert [result for result in killed if result.wrong] == []
