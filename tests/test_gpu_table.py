"""`benchmarks.speed.gpu` in tiny sizes: all rows run; rows that are done or do not fit are skipped, as are wrong kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.speed import gpu, gpu_rows, speed_page

ROOT = Path(__file__).parents[1]


def test_all_rows_run_in_tiny_sizes(tmp_path):
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "benchmarks.speed.gpu", "--tiny", "--rounds", "1", "--out", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    errors, *rows = json.loads((tmp_path / "gpu.json").read_text())["table"]
    assert not [check for check in errors["checks"] if gpu.is_wrong(check)]
    assert [row["case"] for row in rows] == [row.name for row in gpu_rows.table(tiny=True)]
    assert not [(row["case"], call) for row in rows for call in row["calls"].values() if "ratio" not in call]
    assert len(speed_page.gpu_steps(rows)) > len(rows)


@pytest.fixture
def no_checks(monkeypatch):
    monkeypatch.setattr(gpu, "check_layers", lambda algebra: [])
    rows = [gpu_rows.Row(name, {"real": lambda: list, "quaternion": lambda: list}, seconds) for name, seconds in CASES.items()]
    monkeypatch.setattr(gpu, "table", lambda tiny: iter(rows))
    yield
    torch.set_float32_matmul_precision("highest")


CASES = {"short": 1.0, "long": 1e6, "other": 1.0}


@pytest.mark.usefixtures("no_checks")
def test_rows_that_are_done_or_too_long_are_skipped():
    measured = [row["case"] for row in gpu.measure_speed({"short"}, minutes=4, rounds=2, tiny=True)]
    assert measured == ["errors", "other"]
    assert [row["case"] for row in gpu.measure_speed(set(), minutes=0, rounds=2, tiny=True)] == ["errors"]


def test_results_of_other_commits_and_devices_are_measured_again(tmp_path, monkeypatch):
    seen = []

    def measure_speed(done, *_):
        seen.append(done)
        yield {"case": "step", "calls": {}, "goals": {}}

    monkeypatch.setattr(gpu, "measure_speed", measure_speed)
    for commit in ("a", "a", "b"):
        gpu.write_speed(tmp_path / "gpu.json", 4, 1, False, commit)
    assert seen == [set(), {"step"}, set()]
    assert "train" in json.loads((tmp_path / "gpu.json").read_text())


def test_wrong_algebras_are_not_timed():
    row = gpu_rows.Row("case", {"real": lambda: list, "quaternion": lambda: pytest.fail("called")}, 1.0)
    calls = gpu.measure(row, {"quaternion"}, 2, float("inf"), 0.0)["calls"]
    assert "ratio" in calls["real"]
    assert "wrong" in calls["quaternion"]["error"]
    assert gpu.is_wrong({"layer": "quaternion, block, float32", "error": float("nan")})


def test_calls_that_fail_are_results():
    def fail():
        raise RuntimeError("out of memory")

    calls = gpu.measure(gpu_rows.Row("case", {"real": lambda: list, "octonion": fail}, 1.0), set(), 2, 0.0, 0.0)["calls"]
    assert calls["octonion"] == {"error": "out of memory"}
