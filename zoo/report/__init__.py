"""Reports: tables and pictures of networks and trained models.

An entry point of the group ``zoo.reports`` is a function ``report(model: zoo.Model, **options) -> Report``; ``zoo report
"NAME(option=value)" RUN`` calls it, prints the text and writes the files to the run folder. If its first parameter is named
``runs``, it receives the folders of one or more runs instead, ``report(runs: Sequence[str], **options)``.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


class Report(NamedTuple):
    """The result of a report.

    Attributes:
        values: JSON values, for ``--json``.
        text: Output for the terminal.
        files: File contents by name.
    """

    values: dict[str, Any]
    text: str
    files: dict[str, bytes]


def takes_runs(report: Callable[..., Report]) -> bool:
    """Return whether a report takes the folders of runs instead of a model."""
    return next(iter(signature(report).parameters), "") == "runs"


def plain_console(**options: Any) -> Console:
    """Return a rich console that does not wrap, truncate or colour its output."""
    return Console(soft_wrap=True, highlight=False, markup=False, width=1000, **options)


def plain_table(first: str, *columns: str, **options: Any) -> Table:
    """Return a table with a left-aligned first column and right-aligned further columns."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, **options)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    return table
