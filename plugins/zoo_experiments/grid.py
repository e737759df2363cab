"""A grid of resumable runs: points, their order, the rows of finished runs, and the loop that trains them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A run of a grid: its unique name, values by axis, options of `Fit`, and the points that must be finished before."""

    name: str
    axes: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()


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

    @abstractmethod
    def command(self, point: Point) -> list[str]:
        """Return the arguments of ``zoo`` that train or resume a point in a separate process."""

    @abstractmethod
    def read_row(self, point: Point) -> Row:
        """Read the row of a finished run."""

    @abstractmethod
    def write(self) -> None:
        """Write the results of all finished points."""

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

    def finish(self, point: Point) -> Row:
        """Read the row of a finished run and write all results."""
        self.rows[point.name] = self.first(lambda: self.read_row(point))
        self.first(self.write)
        return self.rows[point.name]

    def sorted_rows(self) -> list[Row]:
        """Return the rows in the order of the points."""
        return [self.rows[point.name] for point in self.points if point.name in self.rows]


class Executor(Protocol):
    """Trains points: in this process, in separate processes, or on a cluster."""

    slots: int

    def start(self, grid: Grid, point: Point) -> None:
        """Start to train a point."""

    def ended(self) -> Iterator[tuple[str, str | None]]:
        """Wait briefly and yield the names of ended points, with the reason of a failure or None."""

    def close(self) -> None:
        """Stop all running points."""


def execute(
    grid: Grid, executor: Executor, report: Callable[[Point], None] = lambda point: None, wanted: Collection[str] | None = None
) -> None:
    """Train the wanted points (by default all) as soon as their predecessors are finished, and report each that has ended."""
    running: dict[str, Point] = {}
    try:
        while True:
            for point in grid.ready():
                if len(running) >= executor.slots:
                    break
                if point.name not in running and (wanted is None or point.name in wanted):
                    executor.start(grid, point)
                    running[point.name] = point
            if not running:
                return
            for name, failure in executor.ended():
                point = running.pop(name)
                if failure is None and not grid.is_finished(point):
                    failure = "it ended without a summary"
                if failure is None:
                    grid.finish(point)
                else:
                    grid.failed[name] = failure
                report(point)
    finally:
        executor.close()
