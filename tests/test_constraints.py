"""constraints.txt: format, and a skip message for each version that differs from the tested one."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

PINS = [
    line.split("==")
    for line in (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def test_lines_are_pins():
    assert PINS
    assert all(len(pin) == 2 for pin in PINS)


@pytest.mark.parametrize(("name", "pinned"), PINS, ids=lambda text: text)
def test_installed_versions_match(name, pinned):
    try:
        installed = version(name).partition("+")[0]
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed: it is a development tool")
    if installed != pinned:
        pytest.skip(f"{name} {installed} is installed; constraints.txt has {pinned}")
