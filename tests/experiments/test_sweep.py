"""``zoo sweep``: the grid of a file, the folder of a sweep, the command, and a Ray cluster whose worker is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from zoo_experiments.grid import LocalProcesses, execute
from zoo_experiments.options import Sweep
from zoo_experiments.sweep import SweepGrid, read_rows, select, sweep, sweep_points

from tests.errors import raises
from tests.faults.process import Running
from tests.faults.ranks import alive
from zoo.cli.commands import main
from zoo.registry import build_options
from zoo.training.folder import write_config
from zoo.training.options import Fit
from zoo.training.resolve import plan_run

BASE = {"backbone": "vit(dim=16, depth=1)", "data": "digits", "trainer": {"max_epochs": 1, "limit_train_batches": 2}}
AXES = {"algebra": ["real", "quaternion"], "optimizer.lr": [0.001, 0.003], "seed": [0, 1]}


def grid(**parts):
    return sweep_points({"base": BASE, "axes": AXES} | parts, "file.yaml")


def test_the_grid_is_the_product_of_the_axes():
    runs = grid()
    assert [point.name for point in runs[:3]] == ["real-lr0.001-seed0", "real-lr0.001-seed1", "real-lr0.003-seed0"]
    assert len({point.name for point in runs}) == len(runs) == 8
    last = runs[-1]
    assert last.axes == {"algebra": "quaternion", "optimizer.lr": "0.003", "seed": "1"}
    assert last.options == BASE | {"algebra": "quaternion", "optimizer": {"lr": 0.003}, "seed": 1}


def test_a_label_sets_several_options():
    rows = {"full": {"algebra": "quaternion"}, "partial": {"algebra": "quaternion", "scope": "attention", "optimizer.lr": 0.1}}
    runs = grid(axes={"row": rows, "trainer.max_epochs": [1, 2]})
    assert [point.name for point in runs] == [f"{row}-max_epochs{count}" for row in ("full", "partial") for count in (1, 2)]
    assert runs[3].options["scope"] == "attention"
    assert runs[3].options["optimizer"] == {"lr": 0.1}
    assert runs[3].options["trainer"] == {"max_epochs": 2, "limit_train_batches": 2}


def test_an_axis_may_change_an_option_of_a_spec():
    runs = grid(base=BASE | {"optimizer": "sgd(lr=0.1)"}, axes={"algebra": ["real"], "optimizer.lr": [0.2]})
    assert (runs[0].fit.optimizer.name, runs[0].fit.optimizer.lr) == ("sgd", 0.2)


def test_exclude():
    runs = grid(exclude=[{"algebra": "real", "seed": [1]}, {"optimizer.lr": 0.003, "algebra": "quaternion"}])
    names = ["real-lr0.001-seed0", "real-lr0.003-seed0", "quaternion-lr0.001-seed0", "quaternion-lr0.001-seed1"]
    assert [point.name for point in runs] == names


@pytest.mark.parametrize(
    ("parts", "code", "values"),
    [
        ({"axes": {"algebr": ["real"]}}, "unknown", ("algebr", "'algebra'")),
        ({"axes": {"seed": [0]}}, "missing", ("algebra",)),
        ({"axes": {"algebra": ["real"], "seed": ["x"]}}, "invalid", ("real-seedx",)),
        ({"axes": {"row": {"a b": {"algebra": "real"}, "a-b": {"algebra": "real"}}}}, "invalid", ("folder name",)),
        ({"exclude": [{"algebra": "octonion"}]}, "unknown", ("octonion",)),
        ({"axes": {"algebra": "real"}}, "invalid", ("each axis a list of values",)),
        ({"axes": {}}, "invalid", ("no runs", "no axis")),
        ({"base": BASE | {"run_dir": "other"}}, "conflict", ("real-lr0.001-seed0", "run_dir")),
        ({"base": BASE | {"resume": "auto"}}, "conflict", ("real-lr0.001-seed0", "resume")),
        ({"axes": {"algebra": ["real"], "trainer.fast_dev_run": [False, True]}}, "conflict", ("fast_dev_runTrue",)),
    ],
)
def test_invalid_files(parts, code, values):
    with raises(code, *values):
        grid(**parts)


# --- the folder ---

SUMMARY = {"metrics": {"accuracy": 0.5}, "parameters": {"total": 1, "real_twin": 4}, "seconds": 1.0}


def finished(folder, point):
    path = folder / "runs" / point.name
    path.mkdir(parents=True)
    write_config(path, plan_run(build_options(Fit, point.options)).config)
    (path / "summary.json").write_text(json.dumps(SUMMARY))


def test_finished_runs_are_not_repeated_and_rows_are_in_the_order_of_the_grid(tmp_path):
    made = grid()
    for point in (made[3], made[0]):
        finished(tmp_path, point)
    assert [point.name for point in SweepGrid(tmp_path, made).ready()] == [p.name for p in made if p not in (made[0], made[3])]
    assert [row["name"] for row in read_rows(tmp_path)] == [made[0].name, made[3].name]
    more = grid(axes=AXES | {"seed": [0, 1, 2]})
    assert len(SweepGrid(tmp_path, more).ready()) == len(more) - 2


def test_a_run_with_other_options_is_not_a_result(tmp_path):
    finished(tmp_path, grid()[0])  # as if the sweep was killed before it wrote the row
    with raises("mismatch", "real-lr0.001-seed0"):
        SweepGrid(tmp_path, grid(base=BASE | {"batch_size": 8}))
    assert len(SweepGrid(tmp_path, grid()).ready()) == 7
    before = (tmp_path / "results.jsonl").read_bytes()
    with raises("mismatch", "real-lr0.001-seed0"):
        SweepGrid(tmp_path, grid(axes=AXES | {"seed": [5]}))
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_runs_are_selected_by_name():
    made = grid(axes={"algebra": ["real", "phm-4"], "seed": [0, 1]})
    assert select(made, ["phm-4-*"], "f") == ["phm-4-seed0", "phm-4-seed1"]
    with raises("unknown", "phm-5-*"):
        select(made, ["phm-5-*"], "f")


def test_a_damaged_summary_or_row_is_named(tmp_path):
    point = grid()[0]
    finished(tmp_path, point)
    (tmp_path / "runs" / point.name / "summary.json").write_text("{")
    with raises("corrupt", "summary.json"):
        SweepGrid(tmp_path, grid())
    (tmp_path / "results.jsonl").write_text("{\n")
    with raises("corrupt", "results.jsonl"):
        SweepGrid(tmp_path, grid())


def test_a_deleted_results_file_is_rebuilt(tmp_path):
    point = grid()[0]
    finished(tmp_path, point)
    (tmp_path / "results.jsonl").write_text("{")
    values, options = {"base": BASE, "axes": AXES}, Sweep(run_dir=str(tmp_path), only=point.name)
    with raises("corrupt", "results.jsonl", "delete it"):
        sweep(values, "file.yaml", options)
    (tmp_path / "results.jsonl").unlink()
    results = sweep(values, "file.yaml", options)
    assert results["rows"] == read_rows(tmp_path) != []


# --- the command ---


def file_of(folder, **parts):
    trainer = {"max_epochs": 2, "limit_train_batches": 4, "limit_val_batches": 1, "limit_test_batches": 1, "accelerator": "cpu"}
    base = {"backbone": "vit(dim=16, depth=1, dropout=0.1)", "data": "digits", "checkpoint_every": "1steps", "trainer": trainer}
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump({"base": base, "axes": {"algebra": ["real", "quaternion"]}} | parts))
    return path


def process_of(run):
    """Return the id of the process that trains a run and prints to its log."""
    log, outputs = run.parents[1] / "logs" / f"{run.name}.log", dict[str, str]()
    for path in Path("/proc").glob("[0-9]*/fd/1"):
        with suppress(OSError):  # it has ended
            outputs[path.parts[2]] = os.readlink(path)
    return int(next(pid for pid, output in outputs.items() if output == str(log)))


def test_a_killed_sweep_resumes_to_the_results_of_a_single_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = file_of(tmp_path, axes={"algebra": ["quaternion"]})
    run, deadline = tmp_path / "cut/runs/quaternion", time.monotonic() + 600
    process = Running(["sweep", str(file), "--run-dir", str(tmp_path / "cut")], tmp_path).process
    while not list(run.glob("checkpoints/*.ckpt")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    trained = process_of(run)
    process.kill()
    process.join()
    while alive(trained):
        assert time.monotonic() < deadline  # the run ends with the sweep
        time.sleep(0.02)
    assert not read_rows(Path("cut"))
    assert main(["sweep", str(file), "--run-dir", "cut"]) == 0
    assert "1 run, 0 finished" in capsys.readouterr().out
    assert main(["fit", "-c", "cut/configs/quaternion.yaml", "--run-dir", "alone"]) == 0
    (row,), alone = read_rows(Path("cut")), json.loads(Path("alone/summary.json").read_text())
    assert {key: row[key] for key in ("metrics", "validation")} == {key: alone[key] for key in ("metrics", "validation")}
    assert json.loads((run / "summary.json").read_text())["resumed_from"] is not None
    Path("cut/results.jsonl").write_text("")  # as if killed before it wrote the row
    capsys.readouterr()
    assert main(["sweep", str(file), "--run-dir", "cut"]) == 0
    assert "1 run, 1 finished" in capsys.readouterr().out
    assert read_rows(Path("cut")) == [row]


def test_a_failed_run_is_reported_and_the_others_are_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bad = {"algebra": "real", "trainer": {"strategy": "nothing"}}
    rows = {"bad": bad, "good": {"algebra": "real"}, "left out": {"algebra": "quaternion"}}
    file = file_of(tmp_path, axes={"row": rows})
    assert main(["sweep", str(file), "--only", "b*,good", "--json"]) == 1
    results = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in results["rows"]] == ["good"]
    assert list(results["failed"]) == ["bad"]
    assert "nothing" in results["failed"]["bad"]
    assert results["run_dir"] == "runs/sweep-grid"


@pytest.mark.slow
def test_ctrl_c_prints_how_to_resume(tmp_path):
    line = [sys.executable, "-m", "zoo", "sweep", str(file_of(tmp_path)), "--run-dir", "run"]
    process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "2 runs" in process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert len(err.splitlines()) == 1
    assert "0 of 2 runs" in err


@pytest.mark.parametrize(
    ("options", "code", "values"),
    [
        ({"jobs": 0}, "invalid", ("jobs=0",)),
        ({"run_dir": "clone"}, "conflict", ("clone",)),
    ],
)
def test_invalid_options_and_folders(options, code, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("configs", "logs"):  # files of a user, which a sweep must not overwrite
        Path("clone", part).mkdir(parents=True)
    values_of_file = yaml.safe_load(file_of(tmp_path).read_text())
    with raises(code, *values):
        sweep(values_of_file, "grid.yaml", Sweep(**options))
    assert not Path("runs").exists()


# --- on Ray ---


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
