"""The page of the results."""

import pytest

from tests.faults.report import made

MACHINE = {"date": "2026-11-22", "cores": 2, "processor": "one", "torch": "2.15.0", "lightning": "2.6.6"}


@pytest.mark.parametrize(
    ("commit", "shown"), [("0123456789ab", "0123456789"), ("0123456789ab-changed", "0123456789-changed"), (None, "none")]
)
def test_the_page_shows_the_commit(commit, shown):
    assert made({"machine": MACHINE, "commit": commit}).endswith(f", commit {shown}.")
