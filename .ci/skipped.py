"""A plugin of pytest that writes the node ids of the skipped tests to the file named by the environment variable SKIPPED."""

import os
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write them at the end, in the process that the workers report to."""
    skipped = terminalreporter.stats.get("skipped", [])
    Path(os.environ["SKIPPED"]).write_text("".join(f"{report.nodeid}\n" for report in skipped))
