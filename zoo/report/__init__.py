"""Reports: tables and pictures of what a network has and what a trained model has learned.

An entry point of the group ``zoo.reports`` is a function ``report(model: zoo.Model, **options) -> Report``; ``zoo report
"NAME(option=value)" RUN`` calls it, prints the text and writes the files into the run's folder. If its first argument is named
``runs`` it gets the folders of one or more runs as texts, ``report(runs: Sequence[str], **options)``, and reads what it needs.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


class Report(NamedTuple):
    """What a report found.

    Attributes:
        values: JSON values, for ``--json``.
        text: A table or a few lines, for the terminal.
        files: The content of files by name, for the folder of the run.
    """

    values: dict[str, Any]
    text: str
    files: dict[str, bytes]


def takes_runs(report: Callable[..., Report]) -> bool:
    """Return whether a report is on the folders of runs, and not on a model."""
    return next(iter(signature(report).parameters), "") == "runs"


def plain_console(**options: Any) -> Console:
    """Return a console of rich that neither wraps, cuts nor colours: a table is as wide as it needs to be, in a pipe too."""
    return Console(soft_wrap=True, highlight=False, markup=False, width=1000, **options)


def plain_table(first: str, *columns: str, **options: Any) -> Table:
    """Return a table of a column of names and columns of numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, **options)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    return table
