"""Runs with several processes, started by Lightning, torchrun or srun."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

import zoo
from tests.errors import raises
from tests.faults.process import Running, srun, torchrun
from tests.faults.runs import write_parallel
from zoo.training import processes
from zoo.training.processes import launched_devices

LIMITS = ("--trainer.max_epochs=1", "--trainer.accelerator=cpu")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory, corpus) -> Path:
    """A folder with data whose rows cannot be divided evenly between two processes."""
    folder = tmp_path_factory.mktemp("processes")
    corpus(folder / "ranking.tsv", "ranking", 180)
    corpus(folder / "text.tsv", "text", 65)
    write_parallel(folder / "pairs", train=24, val=5, test=7)
    return folder


def fit(workdir: Path, backbone: str, data: str, *words: str) -> list[str]:
    """Return a command that trains for one epoch."""
    return ["fit", f"--backbone={backbone}", "--algebra=quaternion", f"--data={data}", *LIMITS, *words]


def lightning(workdir: Path, words: list[str]) -> list[subprocess.Popen[str]]:
    """Start one process, which starts the other."""
    return [start(workdir, [sys.executable, "-m", "zoo", *words, "--trainer.devices=2"])]


def start(workdir: Path, command: list[str], **env: str) -> subprocess.Popen[str]:
    """Start a process with one thread."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **env}
    return subprocess.Popen(command, cwd=workdir, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes: list[subprocess.Popen[str]] | list[Running]) -> list[tuple[int, str, str]]:
    """Wait for processes and return their exit codes, stdout and stderr."""
    results = []
    for process in processes:
        if isinstance(process, Running):
            ended = process.ended(300)
            results.append((ended.code, ended.out, ended.err))
        else:
            out, err = process.communicate(timeout=300)
            results.append((process.returncode, out, err))
    return results


CASES = {
    "lightning": (lightning, "lstm(dim=8, hidden=8)", "ranking(path=ranking.tsv)", {"loss", "map", "mrr", "top1"}),
    "torchrun": (
        torchrun,
        "transformer(dim=8, depth=1, heads=2, ffn=8)",
        "parallel(path=pairs, source=en, target=fr, batch_size=4)",
        {"bleu"},
    ),
    "srun": (srun, "fasttext(dim=8, hidden=8)", "text(path=text.tsv)", {"loss", "accuracy", "f1"}),
}


@pytest.mark.parametrize("name", [name if name == "torchrun" else pytest.param(name, marks=pytest.mark.slow) for name in CASES])
def test_two_processes_share_a_folder_and_measure_every_row_once(workdir, name, monkeypatch):
    launch, backbone, data, metrics = CASES[name]
    ended = finish(launch(workdir, fit(workdir, backbone, data)))
    assert [code for code, _, _ in ended] == [0] * len(ended), ended[0][2]
    printed = "".join(out for _, out, _ in ended)
    assert printed.count("epoch 1/1  ") == printed.count("saved in ") == 1
    monkeypatch.chdir(workdir)
    (run,) = (run for run in Path("runs").iterdir() if backbone.partition("(")[0] in run.name)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["device"] == "2 x cpu"
    assert summary["metrics"].keys() >= metrics
    alone = zoo.load(run).evaluate()
    assert summary["metrics"] == pytest.approx(alone, abs=2e-6)
    exact = metrics - {"loss"}
    assert {key: summary["metrics"][key] for key in exact} == {key: alone[key] for key in exact}
    assert (run / "metrics.csv").read_text().count("\n") > 2


def test_an_error_of_rank_0_ends_all_processes(workdir):
    words = fit(workdir, "fasttext(dim=8, hidden=8)", "text(path=text.tsv, text=nothing)", "--run-dir=refused")
    first, second = finish(srun(workdir, words))
    assert (first[0], second[0]) == (2, 2)
    assert "nothing" in first[2]
    assert len(first[2].splitlines()) == 1
    assert second[1] == second[2] == ""
    assert not (workdir / "refused").exists()


@pytest.mark.slow
def test_an_error_of_rank_1_is_reported(workdir):
    """Rank 1 reads the second validation image, which is damaged."""
    for split, count in (("train", 8), ("val", 2), ("test", 2)):
        for number in range(count):
            path = workdir / "pictures" / split / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 100 * (number % 2)).save(path)
    (workdir / "pictures" / "val" / "b" / "1.png").write_bytes(b"no image")
    words = fit(
        workdir, "vit(dim=8,depth=1,heads=1)", "imagefolder(path=pictures,size=8,channels=1,batch_size=1)", "--run-dir=alone"
    )
    ((code, _, err),) = finish(lightning(workdir, words))
    assert code != 0
    assert [line for line in err.splitlines() if line.startswith("zoo: process 1: ") and "1.png" in line], err


@pytest.mark.parametrize(
    ("env", "devices"),
    [
        ({}, {}),
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}, {"devices": 2, "num_nodes": 2}),
        ({"SLURM_NTASKS": "6", "SLURM_NNODES": "3", "SLURM_JOB_NAME": "x"}, {"devices": 2, "num_nodes": 3}),
        ({"SLURM_NTASKS": "6", "SLURM_NNODES": "3", "SLURM_JOB_NAME": "bash"}, {}),
    ],
    ids=str,
)
def test_the_devices_of_a_launcher(env, devices, monkeypatch):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert launched_devices() == devices


@pytest.mark.parametrize(("started_by", "parent", "ends"), [(5, 5, False), (5, 1, True)])
def test_a_run_ends_with_its_sweep(started_by, parent, ends, monkeypatch):
    killed = []
    monkeypatch.setenv(processes.PARENT, str(started_by))
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda name: SimpleNamespace(prctl=lambda *words: 0))
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(os, "kill", lambda *words: killed.append(words))
    processes.end_with_parent()
    assert bool(killed) is ends


def test_several_processes_are_refused_on_windows(monkeypatch):
    options = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    one, two = (processes.build_trainer(options | {"devices": devices, "strategy": "ddp"}) for devices in (1, 2))
    processes.check_strategy(two)
    monkeypatch.setattr(sys, "platform", "win32")
    processes.check_strategy(one)
    with raises("unsupported", "Windows", "--trainer.devices 1"):
        processes.check_strategy(two)


class Other(zoo.InputError):
    """A subclass of `InputError`."""


def test_all_processes_raise_the_error_of_rank_0():
    sent = []

    def broadcast(outcome):
        sent.append(outcome)
        return sent[0]

    def fails():
        raise Other("wrong")

    for rank in (0, 1):
        strategy = SimpleNamespace(global_rank=rank, world_size=2, broadcast=broadcast)
        with pytest.raises(Other, match="wrong") as error:
            processes.Processes(strategy).first(fails)
        assert error.value.is_shared


@pytest.mark.parametrize(
    "text", ["[gloo/transport/tcp/pair.cc:547] Connection closed by peer", "Application timeout caused pair closure"]
)
def test_a_failed_collective_operation_says_how_to_resume(text):
    lost = processes.Processes(SimpleNamespace(global_rank=0, world_size=2, launcher=None))
    with raises("failed", "another process ended or does not answer", "resume with"), lost.report_lost(lambda: "resume with X"):
        raise RuntimeError(text)
    with pytest.raises(RuntimeError, match="shape"), lost.report_lost(lambda: ""):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
