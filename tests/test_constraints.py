"""constraints.txt says what this release was tested with; a run with other versions says so."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

PINS = [
    line.split("==")
    for line in (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def test_every_line_is_a_pin():
    assert PINS
    assert all(len(pin) == 2 for pin in PINS)


@pytest.mark.parametrize(("name", "pinned"), PINS, ids=lambda text: text)
def test_these_are_the_tested_versions(name, pinned):
    try:
        found = version(name).partition("+")[0]
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed: it is for working on the zoo")
    if found != pinned:
        pytest.skip(f"tested with {name} {found}, constraints.txt says {pinned}")
