"""Reports: tables and pictures of what a network has and what a trained model has learned.

An entry point of the group ``zoo.reports`` is a function ``report(model: zoo.Model, **options) -> Report``; ``zoo report
"NAME(option=value)" RUN`` calls it, prints the text and writes the files into the run's folder.
"""

from typing import Any, NamedTuple


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
