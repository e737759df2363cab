"""Workers: commands that share imported modules end like commands of separate processes."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from zoo_experiments.worker import Worker

from tests.faults.process import forked, zoo_command
from tests.faults.ranks import alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers fork on Linux only")
TRAINER = ["--trainer.max_epochs", "2", "--trainer.limit_train_batches", "5", "--trainer.accelerator", "cpu"]


def fit(run, algebra, *options):
    network = ["--backbone", "vit(dim=16, depth=1, dropout=0.1)", "--algebra", algebra, "--data", "digits"]
    return ["fit", *network, *TRAINER, "--run-dir", str(run), *options]


def wait_for(condition):
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def child_of(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else None


def begin(worker, run, tmp_path):
    """Start a run that does not end, and return a thread whose ``code`` will be its exit code."""

    endless = fit(run, "real", "--trainer.max_epochs", "100000", "--checkpoint-every", "1steps")

    def train():
        thread.code = worker.run(endless, tmp_path / "log")

    thread = threading.Thread(target=train)
    thread.start()
    wait_for(lambda: list(run.glob("checkpoints/*.ckpt")))
    return thread


@pytest.fixture(scope="module")
def worker():
    """The worker of all tests; the last one kills it."""
    worker = Worker("1")
    yield worker
    worker.close()
    assert not worker.is_alive


def test_runs_of_a_worker_equal_separate_processes_whatever_ran_before(worker, tmp_path):
    (tmp_path / "log").touch()
    before = fit(tmp_path / "first", "phm-4", "--seed", "3", "--trainer.deterministic", "true")
    assert worker.run(before, tmp_path / "log") == 0
    assert worker.run(fit(tmp_path / "wrong", "nothing"), tmp_path / "log") == 2
    assert "unknown algebra 'nothing'" in (tmp_path / "log").read_text()
    thread = begin(worker, tmp_path / "killed", tmp_path)
    assert child_of(worker.process)
    os.kill(child_of(worker.process), signal.SIGKILL)
    thread.join()
    assert thread.code == -signal.SIGKILL
    thread = begin(worker, tmp_path / "stopped", tmp_path)
    worker.terminate()
    thread.join()
    assert thread.code == 128 + signal.SIGTERM
    assert "resume with" in (tmp_path / "log").read_text()
    assert worker.is_alive
    assert worker.run(fit(tmp_path / "shared", "quaternion"), tmp_path / "log") == 0
    assert zoo_command(fit(tmp_path / "alone", "quaternion"), tmp_path).code == 0
    for file in ("metrics.csv", "model/model.safetensors", "config.yaml"):
        assert (tmp_path / "shared" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()


def start_worker(file):
    """Start a worker in this process, write its id to a file, and never end."""
    file.write_text(f"{Worker().process.pid}\n")
    time.sleep(600)


def test_a_run_ends_with_its_worker_and_a_worker_with_its_parent(worker, tmp_path):
    (tmp_path / "log").touch()
    thread = begin(worker, tmp_path / "run", tmp_path)
    child = child_of(worker.process)
    worker.kill()
    thread.join()
    assert thread.code == -signal.SIGKILL
    assert not worker.is_alive
    worker.close()
    wait_for(lambda: not alive(child))
    started = tmp_path / "started"
    parent = forked(start_worker, started)
    wait_for(lambda: started.exists() and started.read_text().endswith("\n"))
    pid = int(started.read_text())
    parent.kill()
    parent.join()
    wait_for(lambda: not alive(pid))
