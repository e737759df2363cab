"""List plugins completely, without importing them."""

import sys

import pytest

from zoo.registry import GROUPS, Entry, entries, summary

MODULE = '''
import nothing_of_this_name  # Importing this module would fail.

raise SystemExit("imported")

def plain():
    """First line: \\d.

    Second line.
    """

class Holder:
    """A class."""

alias = plain
"""A variable."""

def silent(): ...
'''


def names(group="algebras"):
    return [entry.name for entry in entries(group)]


def test_entries_are_complete_and_sorted(good):
    site = good.install("Extra_Plugin", {"zeta": "extra.deep:Zeta", "alpha": "extra:Alpha"}, version="2.1")
    assert Entry("zeta", "zoo.algebras", "extra.deep:Zeta", "Extra_Plugin", "2.1") in entries("zoo.algebras")
    assert {"alpha", "sound", "zeta"} <= set(names())
    assert names() == sorted(names())
    assert entries("algebras") == entries(GROUPS["algebras"])
    assert site.exists()


def test_a_change_of_path_is_seen_at_once(good):
    assert "late" not in names()
    good.install("late-plugin", {"late": "x:y"})
    assert "late" in names()


@pytest.mark.parametrize(
    ("value", "visible"),
    [("off", set()), ("One_Plugin, three-plugin", {"one", "thr"}), ("", {"one", "two", "thr"})],
)
def test_zoo_plugins_hides_third_party_plugins(ours, monkeypatch, value, visible):
    for name in ("one-plugin", "two-plugin", "three-plugin"):
        ours.install(name, {name[:3]: "x:y"})
    monkeypatch.setenv("ZOO_PLUGINS", value)
    assert {"one", "two", "thr"} & set(names()) == visible
    assert "quaternion" in names()


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("pack.deep.module:plain", "First line: \\d."),
        ("pack.deep.module:Holder", "A class."),
        ("pack.deep.module:alias", "A variable."),
        ("pack.deep.module:missing", ""),
        ("nowhere:plain", ""),
        ("pack.broken:plain", ""),
    ],
)
def test_summary_reads_without_importing(environment, value, line):
    initial = "raise SystemExit('imported')"
    modules = {"pack/__init__.py": initial, "pack/deep/module.py": MODULE, "pack/broken.py": "def plain(:"}
    environment.install("pack-plugin", {"it": value}, modules)
    [entry] = [entry for entry in entries("algebras") if entry.distribution == "pack-plugin"]
    assert summary(entry) == line
    assert "pack" not in sys.modules


def test_every_entry_of_ours_has_a_summary():
    ours = [entry for group in GROUPS.values() for entry in entries(group) if entry.ours]
    assert {entry.group for entry in ours} >= {
        f"zoo.{noun}" for noun in ("algebras", "backbones", "datasets", "tasks", "reports")
    }
    assert [str(entry) for entry in ours if not summary(entry)] == []
