"""Executors of a grid: this process, parallel processes, or a Ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from zoo.errors import InputError, one_line
from zoo.training.callbacks import DivergenceError
from zoo.training.processes import PARENT
from zoo_experiments.grid import Executor, Grid, Point

PATIENCE = 120.0
"""Seconds for runs to write a checkpoint when the experiment is stopped."""


class Here:
    """Train one point after the other in this process."""

    slots = 1

    def __init__(self, train: Callable[[Point], None]) -> None:
        self.train = train

    def submit(self, grid: Grid, point: Point) -> Future[str | None]:
        """Train a point. Errors other than a divergence end the experiment."""
        future: Future[str | None] = Future()
        try:
            self.train(point)
            future.set_result(None)
        except DivergenceError as error:
            future.set_result(str(error))
        return future

    def close(self) -> None:
        """Do nothing: the error or signal that ends this process has ended the run."""


class LocalProcesses:
    """Train points in parallel processes of ``zoo``."""

    def __init__(self, jobs: int) -> None:
        self.slots = jobs
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._threads = str(max(1, cores // jobs)) if jobs > 1 else None
        self._waiters = ThreadPoolExecutor(jobs)
        self._running: dict[Future[str | None], subprocess.Popen[bytes]] = {}

    def submit(self, grid: Grid, point: Point) -> Future[str | None]:
        """Start the process of a point, which ends with this one and writes to a log."""
        log = new_log(grid, point)
        with log.open("wb") as output:
            # In its own session, so that Ctrl-C reaches it once, from `close`.
            process = subprocess.Popen(**zoo_process(grid.command(point), output, self._threads), start_new_session=True)
        future = self._waiters.submit(lambda: failure_of(log, process.wait()))
        self._running[future] = process
        return future

    def close(self) -> None:
        """Let the runs write a checkpoint; kill those that take too long."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for future in wait(self._running, PATIENCE).not_done:
            self._running[future].kill()
        self._waiters.shutdown()


class Ray:
    """Train points on a Ray cluster, which retries lost ones."""

    slots = sys.maxsize

    def __init__(self, cpus: float, gpus: float) -> None:
        try:
            import ray
        except ImportError as error:
            text = "--on ray needs Ray: pip install 'hypercomplex-zoo[ray]'"
            raise InputError(text, code="dependency") from error
        handler, address = signal.getsignal(signal.SIGTERM), os.environ.get("RAY_ADDRESS", "auto")
        try:
            host, _, port = address.rpartition("/")[2].rpartition(":")
            if host and port.isdigit():  # Ray itself tries for six minutes, and then ends the process
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            signal.signal(signal.SIGTERM, handler)  # Ray has replaced it
        except Exception as error:  # of Ray, gRPC or sockets
            text = f"cannot reach a Ray cluster: {one_line(error, 150)}; start one (ray start --head) or set RAY_ADDRESS"
            raise InputError(text, code="failed") from error
        self._ray = ray
        self._train = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3)(run_on_node)

    def submit(self, grid: Grid, point: Point) -> Future[str | None]:
        """Submit a point."""
        log, failure = new_log(grid, point).absolute(), Future[str | None]()

        def end(task: Future[int]) -> None:
            error = task.exception()  # of Ray
            lost = f"lost by Ray: {one_line(error, 200)} (log: {log})" if error else None
            failure.set_result(lost or failure_of(log, task.result()))

        self._train.remote(grid.command(point), str(Path.cwd()), str(log)).future().add_done_callback(end)
        return failure

    def close(self) -> None:
        """Disconnect from the cluster, which cancels the running points."""
        self._ray.shutdown()


def make_executor(options: Any) -> Executor:
    """Return the executor that the options of an `Execution` select, with a separate process for every run."""
    return Ray(options.cpus, options.gpus) if options.on == "ray" else LocalProcesses(options.jobs)


def run_on_node(arguments: list[str], folder: str, log: str) -> int:
    """Run ``zoo`` in a folder on a node of the cluster and return its exit code."""
    with Path(log).open("ab") as output:
        return subprocess.run(**zoo_process(arguments, output), cwd=folder, check=False).returncode


def new_log(grid: Grid, point: Point) -> Path:
    """Create the empty log file of a point."""
    log = grid.log(point)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    return log


def zoo_process(arguments: list[str], output: Any, threads: str | None = None) -> dict[str, Any]:
    """Return the keywords of `subprocess.Popen` for a process of ``zoo``."""
    environment = {**({"OMP_NUM_THREADS": threads} if threads else {}), **os.environ, PARENT: str(os.getpid())}
    if not {"", os.getcwd()} & set(sys.path):  # then python -m must not import modules of this folder
        environment["PYTHONSAFEPATH"] = "1"
    files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
    return {"args": [sys.executable, "-m", "zoo", *arguments], "env": environment, **files}


def failure_of(log: Path, code: int) -> str | None:
    """Return the error that a run has printed, or its exit code and last line; None if it succeeded."""
    if code == 0:
        return None
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("zoo: ") for line in lines if code > 0 and line.startswith("zoo: ")]
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"
    text = errors[-1] if errors else "; ".join([ended, *lines[-1:]])
    return f"{text[:300]} (log: {log})"
