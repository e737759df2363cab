"""Ctrl-C, SIGTERM and kill -9 of the command line: exit codes, messages and exact resumption."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.process import Running

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
SMALL = ("--backbone=vit(dim=16,depth=1,dropout=0.1)", "--algebra=quaternion", "--trainer.accelerator=cpu")
LONG = (*SMALL, "--trainer.limit_train_batches=5", "--trainer.max_epochs=40", "--checkpoint-every=2steps")


def start(folder, *words):
    """Start ``zoo`` in a new session, forked from a process that has imported everything."""
    return Running(words, folder, {"PYTHONUNBUFFERED": "1"}, (os.setsid, ()))


def launch(folder, *words, **env):
    """Start ``zoo`` as a user does, so that it can start further processes."""
    command = [sys.executable, "-m", "zoo", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT | env, start_new_session=True, **pipes)


def finish(process):
    if isinstance(process, Running):
        ended = process.ended(240)
        return ended.code, ended.out, ended.err
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def wait_for(process, line):
    """Wait until a run prints a line with this beginning."""
    output = process.outputs.with_suffix(".out")
    while not (output.exists() and f"\n{line}" in f"\n{output.read_text()}"):
        assert process.process.exitcode is None, finish(process)
        time.sleep(0.005)


def model(run):
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    code, _, err = finish(start(folder, "fit", *LONG, "--run-dir=run"))
    assert (code, err) == (0, "")
    return folder / "run"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)])
def test_a_signal_in_training(tmp_path, whole, number, code):
    process = start(tmp_path, "fit", *LONG, "--run-dir=run")
    wait_for(process, "epoch 2/40")
    os.kill(process.process.pid, number)
    ended, _, err = finish(process)
    assert ended == code
    assert err.startswith("zoo: stopped; progress up to epoch ")
    assert err.endswith("is saved; resume with: zoo fit --resume run\n")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run" / "model").exists()
    words = shlex.split(err.partition("resume with: zoo ")[2])
    ended, out, err = finish(start(tmp_path, *words))
    assert (ended, err) == (0, "")
    assert out.startswith("resuming run after epoch 00")
    assert model(tmp_path / "run") == model(whole)
    assert (tmp_path / "run" / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


@pytest.mark.parametrize(("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)])
def test_a_signal_while_the_model_is_tested(tmp_path, number, code):
    short = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=2", "--batch-size=1")
    process = start(tmp_path, "fit", *SMALL, *short, "--run-dir=run")
    while not (tmp_path / "run" / "model").exists():
        assert process.process.exitcode is None
        time.sleep(0.005)
    os.kill(process.process.pid, number)
    assert finish(process)[::2] == (code, "zoo: stopped; the model is saved but not tested; test it with: zoo test run\n")
    assert not (tmp_path / "run" / "summary.json").exists()
    ended, out, err = finish(start(tmp_path, "test", "run"))
    assert (ended, err) == (0, "")
    assert "accuracy" in out
    ended, out, err = finish(start(tmp_path, "fit", "--resume=run"))  # nothing is left to train
    assert (ended, err) == (0, "")
    assert "epoch 1/1" not in out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"]["accuracy"] > 0
    assert sum("train_loss" in row for row in (tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1


def test_kill_9_and_auto(tmp_path, whole):
    """The run is killed twice and finishes at the third call of the same command."""
    for line in ("epoch 3/40", "epoch 20/40"):
        process = start(tmp_path, "fit", *LONG, "--resume=auto")
        wait_for(process, line)
        process.process.kill()
        assert finish(process)[0] == -signal.SIGKILL
    ended, out, err = finish(start(tmp_path, "fit", *LONG, "--resume=auto"))
    assert (ended, err) == (0, "")
    assert out.startswith("resuming runs/")
    (run,) = (tmp_path / "runs").iterdir()
    assert model(run) == model(whole)
    assert (run / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


@pytest.mark.slow
def test_two_processes_stop_together_and_resume(tmp_path):
    two = (*LONG, "--trainer.devices=2", "--trainer.max_epochs=5", "--num-workers=0")
    code, _, err = finish(launch(tmp_path, "fit", *two, "--run-dir=whole"))
    assert (code, err) == (0, "")
    process = launch(tmp_path, "fit", *two, "--run-dir=run")
    assert any(line.startswith("epoch 2/5") for line in process.stdout)
    os.killpg(process.pid, signal.SIGTERM)  # all processes at once, like a scheduler
    code, _, err = finish(process)
    assert (code, len(err.splitlines())) == (143, 1)
    assert err.endswith("resume with: zoo fit --resume run\n")
    assert remaining(process.pid) == []
    code, _, err = finish(launch(tmp_path, "fit", "--resume=run"))
    assert (code, err) == (0, "")
    assert model(tmp_path / "run") == model(tmp_path / "whole")
    assert (tmp_path / "run" / "metrics.csv").read_text() == (tmp_path / "whole" / "metrics.csv").read_text()


def group(number):
    """Return the running processes of a group."""
    running = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == number and fields[0] != "Z":
                running.append(stat.parent.name)
    return running


def remaining(number):
    """Return the processes of a group that are still running after 15 seconds."""
    deadline = time.monotonic() + 15
    while group(number) and time.monotonic() < deadline:
        time.sleep(0.2)
    return group(number)
