"""Executors of a grid: this process, parallel processes, or a Ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoo.errors import InputError, one_line
from zoo.training.callbacks import DivergenceError
from zoo.training.processes import PARENT
from zoo_experiments.grid import Executor, Grid, Point

PATIENCE = 120.0
"""Seconds for runs to write a checkpoint when the experiment is stopped."""
LOST = "lost by Ray: "
_POLL = 0.1


class Here:
    """Train one point after the other in this process."""

    slots = 1

    def __init__(self, train: Callable[[Point], None]) -> None:
        self.train = train
        self._waiting: list[Point] = []

    def start(self, grid: Grid, point: Point) -> None:
        """Queue the point."""
        self._waiting.append(point)

    def ended(self) -> Iterator[tuple[str, str | None]]:
        """Train the queued points."""
        while self._waiting:
            point = self._waiting.pop()
            try:
                self.train(point)
            except DivergenceError as error:
                yield point.name, str(error)
            else:
                yield point.name, None

    def close(self) -> None:
        """Do nothing: the error or signal that ends this process has ended the run."""


class LocalProcesses:
    """Train points in parallel processes of ``zoo``."""

    def __init__(self, jobs: int) -> None:
        self.slots = jobs
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._threads = str(max(1, cores // jobs)) if jobs > 1 else None
        self._running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def start(self, grid: Grid, point: Point) -> None:
        """Start the process of a point, which ends with this one and writes to a log."""
        log = new_log(grid, point)
        with log.open("wb") as output:
            # In its own session, so that Ctrl-C reaches it once, from `close`.
            process = subprocess.Popen(**zoo_process(grid.command(point), output, self._threads), start_new_session=True)
        self._running[point.name] = process, log

    def ended(self) -> Iterator[tuple[str, str | None]]:
        """Wait briefly and yield the processes that have ended."""
        time.sleep(_POLL)
        for name, (process, log) in [*self._running.items()]:
            if process.poll() is not None:
                del self._running[name]
                yield name, failure_of(log, process.returncode)

    def close(self) -> None:
        """Let the runs write a checkpoint; kill those that take too long."""
        processes = [process for process, _ in self._running.values()]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


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
        self._running: dict[Any, tuple[str, Path]] = {}

    def start(self, grid: Grid, point: Point) -> None:
        """Submit a point."""
        log = new_log(grid, point).absolute()
        self._running[self._train.remote(grid.command(point), str(Path.cwd()), str(log))] = point.name, log

    def ended(self) -> Iterator[tuple[str, str | None]]:
        """Wait a second and yield the points that have ended."""
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=1.0)
        for task in done:
            name, log = self._running.pop(task)
            try:
                code = self._ray.get(task)
            except self._ray.exceptions.RayError as error:
                with log.open("a", encoding="utf-8") as file:
                    file.write(f"\n{LOST}{one_line(error, 200)}\n")
                code = 1
            yield name, failure_of(log, code)

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
    files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
    return {"args": [sys.executable, "-m", "zoo", *arguments], "env": environment(threads), **files}


def failure_of(log: Path, code: int) -> str | None:
    """Return the error that a run has printed, or its exit code and last line; None if it succeeded."""
    if code == 0:
        return None
    text = ""
    with suppress(OSError):  # the log may have been removed
        text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("zoo: ") for line in lines if code > 0 and line.startswith(("zoo: ", LOST))]
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"
    text = errors[-1] if errors else "; ".join([ended, *lines[-1:]])
    return f"{text[:300]} (log: {log})"


def environment(threads: str | None) -> dict[str, str]:
    """Return the environment variables of a run."""
    variables = {PARENT: str(os.getpid())}
    if not {"", os.getcwd()} & set(sys.path):  # then python -m must not import modules of this folder
        variables["PYTHONSAFEPATH"] = "1"
    return {**({"OMP_NUM_THREADS": threads} if threads else {}), **os.environ, **variables}
