"""A grid of resumable runs: points, the order in which they can be trained, their rows, and one loop that trains them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from zoo.training.folder import config_values, flat, read_config

Result = TypeVar("Result")
Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """A run of a grid.

    Attributes:
        name: Its name, unique in the grid.
        axes: Its value on every axis.
        options: Its options, those of `zoo.training.options.Fit` by name, nested.
        after: Names of the points that must be done before it starts.
    """

    name: str
    axes: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()


class Grid(ABC):
    """The points of an experiment and its folder.

    Args:
        folder: The folder of the experiment, which exists.
        points: The points in the order of training.

    Attributes:
        rows: The row of every point that is done, by name.
        failed: Why a point failed, by name; it is tried again when the experiment is resumed.
    """

    def __init__(self, folder: Path, points: Sequence[Point]) -> None:
        self.folder, self.points = folder, list(points)
        self.rows: dict[str, Row] = {}
        self.failed: dict[str, str] = {}

    def path(self, point: Point) -> Path:
        """Return the folder of a point's run."""
        return self.folder / point.name

    def log(self, point: Point) -> Path:
        """Return the file for the output of a point that is trained in a process of its own."""
        return self.folder / "logs" / f"{point.name.replace('/', '-')}.log"

    @abstractmethod
    def command(self, point: Point) -> list[str]:
        """Return the words after ``zoo`` that train or resume a point in a process of its own."""

    @abstractmethod
    def read_row(self, point: Point) -> Row:
        """Read the row of a finished run."""

    @abstractmethod
    def write(self) -> None:
        """Write the results of all points that are done."""

    def first(self, function: Callable[[], Result]) -> Result:
        """Call a function in the first of several processes and return its result in all of them."""
        return function()

    def is_finished(self, point: Point) -> bool:
        """Return whether the run of a point is finished, with or without a row."""
        return self.first((self.path(point) / "summary.json").is_file)

    def is_closed(self, point: Point) -> bool:
        """Return whether a point must not be trained."""
        return point.name in self.failed

    def remaining(self) -> list[Point]:
        """Return the points that are not done and can still be reached."""
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
    """Trains points: in this process, in processes of their own, or on a cluster."""

    slots: int

    def start(self, grid: Grid, point: Point) -> None:
        """Start to train a point."""

    def ended(self) -> Iterator[tuple[str, str | None]]:
        """Wait a moment; yield the name of every point that has ended, and why it failed or None."""

    def close(self) -> None:
        """Stop all points that are under way."""


def execute(
    grid: Grid, executor: Executor, report: Callable[[Point], None] = lambda point: None, wanted: Sequence[str] | None = None
) -> None:
    """Train every point as soon as its predecessors are done, until none is left.

    Args:
        grid: The grid.
        executor: Where points are trained.
        report: Called with every point that has ended; it has a row, or a reason in `Grid.failed`.
        wanted: Names of the points to train; by default all of them.
    """
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


def changed_options(folder: Path, options: Any, ignored: Callable[[str], bool]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, old and new value of the options that differ from config.yaml of a folder."""
    old, new = flat(read_config(folder)), flat(config_values(options))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name) and not ignored(name):
            yield name, old.get(name), new.get(name)
