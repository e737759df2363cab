"""A grid of resumable runs, and the executors that train it: this process, parallel processes, or a Ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml

from zoo.atomic import write_text
from zoo.checkpoint.run_config import changed_options
from zoo.errors import InputError, Interrupted, Stop, one_line
from zoo.registry import build_options
from zoo.registry.limits import cores
from zoo.training.checkpoints import DivergenceError
from zoo.training.options import Fit, config_values
from zoo.training.resolve import plan_run
from zoo_experiments.options import Execution
from zoo_experiments.worker import Worker, python_process

Result = TypeVar("Result")
Row = TypeVar("Row")
"""The record of a finished run."""
Failure = Future[str | None]
"""The reason why the training of a point has failed, or None."""
PATIENCE = 120.0
"""Seconds for runs to write a checkpoint when the experiment is stopped."""

MOST_RUNS = 10_000
"""Largest number of runs of an experiment."""


def check_size(runs: int) -> None:
    """Raise `InputError` for an experiment with more than `MOST_RUNS` runs."""
    if runs > MOST_RUNS:
        raise InputError(f"an experiment of {runs} runs: must be at most {MOST_RUNS}, split it into several")


def check_saved(options: Fit) -> None:
    """Raise `InputError` for the options of a run that saves nothing."""
    if options.trainer.get("fast_dev_run"):
        raise InputError("--trainer.fast_dev_run trains without saving results: try it with a single run", code="conflict")


@dataclass(frozen=True)
class Point:
    """A run of a grid: its unique name, values by axis, options (`Fit` or a mapping), and the points to finish before it."""

    name: str
    axes: Mapping[str, Any]
    options: Any
    after: tuple[str, ...] = ()

    @property
    def fit(self) -> Fit:
        """The options of the run."""
        return self.options if isinstance(self.options, Fit) else build_options(Fit, self.options)


class Grid(ABC, Generic[Row]):
    """The points of an experiment in training order, and its folder.

    Attributes:
        rows: The rows of finished points by name.
        failed: The reasons of failed points by name; resuming the experiment retries them.
    """

    def __init__(self, folder: Path, points: Sequence[Point]) -> None:
        self.folder, self.points = folder, list(points)
        self.rows: dict[str, Row] = {}
        self.failed: dict[str, str] = {}

    def path(self, point: Point) -> Path:
        """Return the run folder of a point."""
        return self.folder / point.name

    def command(self, point: Point) -> list[str]:
        """Write the configuration of a point; return the arguments of ``zoo`` that train or resume it in a separate process."""
        config = self.folder / "configs" / f"{point.name}.yaml"
        config.parent.mkdir(parents=True, exist_ok=True)
        values = config_values(point.options) if isinstance(point.options, Fit) else dict(point.options)
        write_text(config, yaml.safe_dump(values, sort_keys=False))
        return ["fit", "-c", str(config), "--run-dir", str(self.path(point)), "--resume", "auto"]

    @abstractmethod
    def read_row(self, point: Point) -> Row:
        """Read the row of a finished run."""

    @abstractmethod
    def write(self) -> None:
        """Write the results of all finished points."""

    def load(self) -> None:
        """Read the rows of the finished runs; the runs that have started must have the options of their points."""
        for point in self.points:
            folder = self.path(point)
            has_started = (folder / "config.yaml").exists()
            for name, old, new in changed_options(folder, plan_run(point.fit).config) if has_started else ():
                text = f"'{folder}' has {name}={old}, not {new}: use the same options, or another --run-dir"
                raise InputError(text, code="mismatch")
        self.rows |= self.finished_rows()

    def finished_rows(self) -> dict[str, Row]:
        """Read the rows of the finished runs by name."""
        return {point.name: self.read_row(point) for point in self.points if self.has_summary(point)}

    def has_summary(self, point: Point) -> bool:
        """Return whether the run of a point is finished."""
        return (self.path(point) / "summary.json").is_file()

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function on rank 0 and return its result on all ranks."""
        return function()

    def is_closed(self, point: Point) -> bool:
        """Return whether a point must not be trained, also if the experiment is resumed."""
        return False

    def remaining(self, retried: bool = False) -> list[Point]:
        """Return the unfinished points that can still be reached; with ``retried``, if failed ones are trained again."""
        reachable: dict[str, bool] = {}
        for point in self.points:  # predecessors come first
            is_open = (retried or point.name not in self.failed) and not self.is_closed(point)
            before = all(reachable.get(name, False) for name in point.after)
            reachable[point.name] = point.name in self.rows or (before and is_open)
        return [point for point in self.points if reachable[point.name] and point.name not in self.rows]

    def ready(self) -> list[Point]:
        """Return the points that can be trained now."""
        return [point for point in self.remaining() if all(name in self.rows for name in point.after)]

    def finish(self, point: Point) -> None:
        """Read the row of a finished run and write all results."""
        self.rows[point.name] = self.first(lambda: self.read_row(point))
        self.first(self.write)

    def sorted_rows(self) -> list[Row]:
        """Return the rows in the order of the points."""
        return [self.rows[point.name] for point in self.points if point.name in self.rows]


def execute(
    grid: Grid[Any],
    executor: Executor,
    report: Callable[[Point], None] = lambda point: None,
    wanted: Collection[str] | None = None,
) -> None:
    """Train the wanted points (by default all) as soon as their predecessors are finished, and report each that has ended."""
    running: dict[Failure, Point] = {}
    while True:
        started = {point.name for point in running.values()}
        due = [point for point in grid.ready() if wanted is None or point.name in wanted]
        for point in [point for point in due if point.name not in started][: executor.slots - len(running)]:
            running[executor.submit(grid, point)] = point
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            point, failure = running.pop(future), future.result()
            if failure is None and grid.first(partial(grid.has_summary, point)):
                grid.finish(point)
            else:
                grid.failed[point.name] = failure or "it ended without a summary"
            report(point)


@contextmanager
def with_resume_hint(text: Callable[[], str]) -> Iterator[None]:
    """Raise `Interrupted` with a text at Ctrl-C or SIGTERM."""
    try:
        yield
    except (Stop, KeyboardInterrupt) as stop:
        raise Interrupted(f"stopped; {text()}", getattr(stop, "signum", signal.SIGINT)) from stop


# --- executors ---


class InProcess:
    """Train one point after the other in this process."""

    slots = 1

    def __init__(self, train: Callable[[Point], None]) -> None:
        self.train = train

    def submit(self, grid: Grid[Any], point: Point) -> Failure:
        """Train a point. Errors other than a divergence end the experiment."""
        future = Failure()
        try:
            self.train(point)
            future.set_result(None)
        except DivergenceError as error:
            future.set_result(str(error))
        return future


class LocalProcesses:
    """Train points in parallel processes of ``zoo``, which share what `Worker` imports."""

    def __init__(self, jobs: int) -> None:
        self.slots = jobs
        self._threads = str(max(1, cores() // jobs)) if jobs > 1 else None
        self._waiters = ThreadPoolExecutor(jobs)
        self._idle: list[Worker] = []
        self._running: dict[Failure, Worker] = {}

    def submit(self, grid: Grid[Any], point: Point) -> Failure:
        """Start the process of a point, which ends with this one and writes to a log."""
        for failure in [failure for failure in self._running if failure.done()]:
            self._idle.append(self._running.pop(failure))
        self._idle = [worker for worker in self._idle if worker.is_alive]
        worker = self._idle.pop() if self._idle else Worker(self._threads)
        arguments, log = grid.command(point), _new_log(grid, point)
        failure = self._waiters.submit(lambda: _failure_of(log, worker.run(arguments, log)))
        self._running[failure] = worker
        return failure

    def close(self) -> None:
        """Let the runs write a checkpoint; kill those that take too long."""
        busy = {failure: worker for failure, worker in self._running.items() if not failure.done()}
        for worker in busy.values():
            worker.terminate()
        for failure in wait(busy, PATIENCE).not_done:
            busy[failure].kill()
        self._waiters.shutdown()
        for worker in (*self._idle, *self._running.values()):
            worker.close()


class Ray:
    """Train points on a Ray cluster, which retries lost ones."""

    slots = sys.maxsize

    def __init__(self, cpus: float, gpus: float) -> None:
        try:
            import ray
        except ImportError as error:
            raise InputError("--on ray needs Ray: pip install 'hypercomplex-zoo[ray]'", code="dependency") from error
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
        self._train = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=3)(_run_on_node)

    def submit(self, grid: Grid[Any], point: Point) -> Failure:
        """Submit a point."""
        log, failure = _new_log(grid, point).absolute(), Failure()

        def end(task: Future[int]) -> None:
            error = task.exception()  # of Ray
            lost = f"lost by Ray: {one_line(error, 200)} (log: {log})" if error else None
            failure.set_result(lost or _failure_of(log, task.result()))

        self._train.remote(grid.command(point), str(Path.cwd()), str(log)).future().add_done_callback(end)
        return failure

    def close(self) -> None:
        """Disconnect from the cluster, which cancels the running points."""
        self._ray.shutdown()


Executor = InProcess | LocalProcesses | Ray


@contextmanager
def processes(options: Execution) -> Iterator[LocalProcesses | Ray]:
    """Provide the executor with a separate process for every run, on this machine or on Ray; at the end, runs are stopped."""
    executor = Ray(options.cpus, options.gpus) if options.on == "ray" else LocalProcesses(options.jobs)
    try:
        yield executor
    finally:
        executor.close()


def _run_on_node(arguments: list[str], folder: str, log: str) -> int:
    """Run ``zoo`` in a folder on a node of the cluster and return its exit code."""
    with Path(log).open("ab") as output:
        files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        return subprocess.run(**python_process("zoo", arguments), **files, cwd=folder, check=False).returncode


def log_of(grid: Grid[Any], name: str) -> Path:
    """Return the log file of a point."""
    return grid.folder / "logs" / f"{name.replace('/', '-')}.log"


def _new_log(grid: Grid[Any], point: Point) -> Path:
    """Create the empty log file of a point."""
    log = log_of(grid, point.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    return log


def _failure_of(log: Path, code: int) -> str | None:
    """Return the error that a run has printed, or its exit code and last line; None if it succeeded."""
    if code == 0:
        return None
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("zoo: ") for line in lines if code > 0 and line.startswith("zoo: ")]
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"
    text = errors[-1] if errors else "; ".join([ended, *lines[-1:]])
    return f"{text[:300]} (log: {log})"
