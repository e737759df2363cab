"""A sweep on a Ray cluster with a killed worker has the same results as one on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from zoo_experiments.grid import LocalProcesses, execute
from zoo_experiments.sweep import SweepGrid, sweep_points

from tests.experiments.test_sweep import file_of, process_of
from zoo.cli.commands import main


@pytest.fixture
def cluster(monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hypercomplex-zoo[ray]'")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", nodes.address)
    yield nodes
    nodes.shutdown()


def test_a_killed_worker_does_not_change_results(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = sweep_points(yaml.safe_load(file_of(tmp_path).read_text()), "grid.yaml")
    line = [sys.executable, "-m", "zoo", "sweep", "grid.yaml", "--on", "ray", "--run-dir", str(tmp_path / "ray")]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    run, deadline = tmp_path / "ray/runs/quaternion", time.monotonic() + 600
    while not list(run.glob("checkpoints/*.ckpt")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    worker = int(Path(f"/proc/{process_of(run)}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(worker, signal.SIGKILL)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    assert json.loads((run / "summary.json").read_text())["resumed_from"] is not None
    Path("here").mkdir()
    studies = {name: SweepGrid(tmp_path / name, grid) for name in ("ray", "here")}
    execute(studies["here"], LocalProcesses(2))
    assert not studies["here"].failed
    rows = {name: SweepGrid(tmp_path / name, grid).rows for name in studies}
    assert list(rows["ray"]) == list(rows["here"]) == ["real", "quaternion"]
    for name, row in rows["ray"].items():
        assert all(row[key] == rows["here"][name][key] for key in ("metrics", "validation"))


def test_a_missing_cluster_is_reported_in_one_line(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'hypercomplex-zoo[ray]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    file_of(tmp_path)
    assert main(["sweep", "grid.yaml", "--on", "ray"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("zoo: cannot reach a Ray cluster")
    assert err.count("\n") == 1
