"""All names in docs/reference exist, and all public names are documented there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.md"))
BLOCK = re.compile(r"^::: ([\w.]+)\n((?: +.*\n?)*)", flags=re.MULTILINE)


def listed(text: str) -> list[tuple[str, str]]:
    """Return the pairs (module, member) that a page documents; the member is empty if it lists none."""
    pairs = []
    for module, options in BLOCK.findall(text):
        members = re.search(r"members: \[(.*?)\]", options, flags=re.DOTALL)
        pairs += [(module, name.strip()) for name in members[1].split(",")] if members else [(module, "")]
    return pairs


NAMES = [pair for page in PAGES for pair in listed(page.read_text(encoding="utf-8"))]


def find(path: str):
    """Import a module, or return the attribute that a dotted path names."""
    try:
        return import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(find(parent), name)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_documented_names_exist(module, name):
    target = find(module)
    assert not name or hasattr(target, name), f"{module}.{name} is documented in docs/reference but does not exist"


def test_public_names_are_documented():
    import zoo

    assert {name for module, name in NAMES if module == "zoo"} == set(zoo.__all__)


def test_missing_names_are_detected():
    assert listed("::: zoo\n    options:\n      members: [fit, nothing]\n") == [("zoo", "fit"), ("zoo", "nothing")]
    assert not hasattr(find("zoo"), "nothing")
