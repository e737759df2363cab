"""A grid of resumable runs: points, their order, the rows of finished runs, and the loop that trains them."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from zoo.errors import InputError, Interrupted, Stop
from zoo.training.folder import changed_options
from zoo.training.options import Fit, build
from zoo.training.resolve import plan_run

Result = TypeVar("Result")
Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A run of a grid.

    Attributes:
        name: Its unique name.
        axes: Its values by axis.
        options: The options of the run, `Fit` or a mapping.
        after: Names of the points that must be finished before.
    """

    name: str
    axes: Mapping[str, Any]
    options: Any
    after: tuple[str, ...] = ()

    @property
    def fit(self) -> Fit:
        """The options of the run."""
        return self.options if isinstance(self.options, Fit) else build(Fit, self.options)


class Grid(ABC):
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

    def log(self, point: Point) -> Path:
        """Return the log file of a point that is trained in a separate process."""
        return self.folder / "logs" / f"{point.name.replace('/', '-')}.log"

    def command(self, point: Point) -> list[str]:
        """Return the arguments of ``zoo`` that train or resume a point in a separate process."""
        return ["fit", "--resume", str(self.path(point))]

    @abstractmethod
    def read_row(self, point: Point) -> Row:
        """Read the row of a finished run."""

    @abstractmethod
    def write(self) -> None:
        """Write the results of all finished points."""

    def load(self) -> None:
        """Read the rows of the finished runs; the runs that have begun must have the options of their points."""
        for point in self.points:
            folder = self.path(point)
            begun = (folder / "config.yaml").exists()
            for name, old, new in changed_options(folder, plan_run(point.fit).config) if begun else ():
                text = f"'{folder}' has {name}={old}, not {new}: use the same options, or another --run-dir"
                raise InputError(text, code="mismatch")
        self.rows |= {point.name: self.read_row(point) for point in self.points if self.is_finished(point)}

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function on rank 0 and return its result on all ranks."""
        return function()

    def is_finished(self, point: Point) -> bool:
        """Return whether the run of a point has a summary."""
        return self.first((self.path(point) / "summary.json").is_file)

    def is_closed(self, point: Point) -> bool:
        """Return whether a point must not be trained."""
        return point.name in self.failed

    def remaining(self) -> list[Point]:
        """Return the unfinished points that can still be reached."""
        reachable: dict[str, bool] = {}
        for point in self.points:  # predecessors come first
            before = all(reachable.get(name, False) for name in point.after)
            reachable[point.name] = point.name in self.rows or (before and not self.is_closed(point))
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


class Executor(Protocol):
    """Trains points: in this process, in separate processes, or on a cluster."""

    slots: int

    def submit(self, grid: Grid, point: Point) -> Future[str | None]:
        """Start to train a point; the result is the reason of its failure, or None."""

    def close(self) -> None:
        """Stop all running points."""


def execute(
    grid: Grid, executor: Executor, report: Callable[[Point], None] = lambda point: None, wanted: Collection[str] | None = None
) -> None:
    """Train the wanted points (by default all) as soon as their predecessors are finished, and report each that has ended."""
    running: dict[Future[str | None], Point] = {}
    try:
        while True:
            begun = {point.name for point in running.values()}
            due = [point for point in grid.ready() if wanted is None or point.name in wanted]
            for point in [point for point in due if point.name not in begun][: executor.slots - len(running)]:
                running[executor.submit(grid, point)] = point
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                point, failure = running.pop(future), future.result()
                if failure is None and grid.is_finished(point):
                    grid.finish(point)
                else:
                    grid.failed[point.name] = failure or "it ended without a summary"
                report(point)
    finally:
        executor.close()


@contextmanager
def saying_how_to_resume(text: Callable[[], str]) -> Iterator[None]:
    """Raise `Interrupted` with a text at Ctrl-C or SIGTERM."""
    try:
        yield
    except (Stop, KeyboardInterrupt) as stop:
        raise Interrupted(f"stopped; {text()}", getattr(stop, "signum", signal.SIGINT)) from stop
