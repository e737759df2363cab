"""List plugins completely, without importing them; plugins registered in this process work like installed ones."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import zoo
from tests.errors import raises
from zoo import registry
from zoo.registry import GROUPS, Entry, entries, summary

MODULE = '''
"""A module whose text begins lines with the names below.

plain and
alias = are words here.
"""
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

@decorated
def long(
    one, two="""
def plain(): of a string
""",
):
    """A long one.

even if it is not indented
def at all
    """

typed: dict[str, int] = {
    "a": 1,
}
"""A typed variable."""

def silent(): ...

def last():
    """The last one."""
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
        ("pack.deep.module:long", "A long one."),
        ("pack.deep.module:typed", "A typed variable."),
        ("pack.deep.module:silent", ""),
        ("pack.deep.module:last", "The last one."),
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


def test_listing_reads_every_file_once(environment, monkeypatch):
    modules = {"pack/__init__.py": "", "pack/deep/module.py": MODULE}
    environment.install("pack-plugin", {name: f"pack.deep.module:{name}" for name in ("plain", "long", "last")}, modules)
    read, read_bytes = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or read_bytes(path))
    assert all(summary(entry) for entry in entries("algebras") if entry.distribution == "pack-plugin")
    assert len(read) == 1
    read[0].write_text(MODULE.replace("The last", "No longer the last"), encoding="utf-8")
    assert "No longer the last one." in {summary(entry) for entry in entries("algebras")}


def golden() -> zoo.Algebra:
    """Golden integers over the reals: e * e = e + 1."""
    structure = torch.zeros(2, 2, 2)
    structure[0, 0, 0] = structure[0, 1, 1] = structure[1, 0, 1] = structure[1, 1, 0] = structure[1, 1, 1] = 1
    return zoo.Algebra(structure)


@pytest.fixture(autouse=True)
def clean():
    yield
    for group in registry.GROUPS:
        for entry in registry.entries(group):
            if entry.distribution == "local":
                registry.unregister(group, entry.name)


def test_a_registered_algebra_works_by_name():
    assert zoo.register("algebras", "golden", golden) is golden
    assert zoo.algebra("golden").n == 2
    net = zoo.backbone("vit(dim=32, depth=1)", "golden", in_channels=1, image_size=8, num_classes=2)
    assert net(torch.zeros(1, 1, 8, 8)).shape == (1, 2)


def test_registered_plugins_are_listed_and_can_be_removed():
    zoo.register("zoo.algebras", "golden", golden)
    entry = next(entry for entry in registry.entries("algebras") if entry.name == "golden")
    assert (entry.distribution, registry.summary(entry)) == ("local", "Golden integers over the reals: e * e = e + 1.")
    registry.unregister("algebras", "golden")
    with raises("unknown", "'golden'"):
        zoo.algebra("golden")


def test_register_as_a_decorator_checks_options():
    @zoo.register("algebras", "scaled")
    def scaled(factor: float = 1.0) -> zoo.Algebra:
        return zoo.Algebra(torch.full((1, 1, 1), factor))

    assert scaled(3.0).structure.item() == 3
    assert zoo.algebra("scaled(factor=2.0)").structure.item() == 2
    with raises("unknown", "'facto'", "'factor'"):
        zoo.algebra("scaled(facto=2.0)")


def test_a_plugin_must_be_callable():
    with raises("invalid", "seven", "int", "not callable"):
        zoo.register("algebras", "seven", 7)
    assert zoo.algebra("quaternion").n == 4


def test_an_algebra_plugin_must_return_an_algebra():
    zoo.register("algebras", "golden", lambda: "golden")
    with raises("invalid", "algebra 'golden' of local", "returned a str"):
        zoo.algebra("golden")


@pytest.mark.parametrize("spec", ["nothing", lambda layers: None])
def test_a_backbone_must_return_a_module(spec):
    zoo.register("backbones", "nothing", lambda layers: None)
    with raises("invalid", "NoneType", "expected a torch.nn.Module"):
        zoo.backbone(spec, "quaternion")


def test_a_second_registration_replaces_the_first():
    zoo.register("algebras", "golden", golden)
    zoo.register("algebras", "golden", lambda: zoo.Algebra(torch.ones(1, 1, 1)))
    assert zoo.algebra("golden").n == 1


def test_names_of_installed_packages_are_rejected():
    with raises("conflict", "algebra 'octonion' of hypercomplex-zoo", "my_octonion"):
        zoo.register("algebras", "octonion", golden)
    assert zoo.algebra("octonion").n == 8
    zoo.register("backbones", "octonion", golden)  # another group


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("algebra", "x", golden), "unknown", "group 'algebra'"),
        (("algebras", "two words", golden), "invalid", "'two words'"),
    ],
)
def test_invalid_registrations(arguments, code, named):
    with raises(code, named):
        zoo.register(*arguments)


def test_an_integration_of_a_missing_package_is_not_loaded():
    from zoo.cli import listing

    entry = registry.Entry("no_such_package", "zoo.integrations", "no_such_module:f", "hypercomplex-zoo", "0.1.0")
    assert listing._loaded(entry) == "no_such_package is not installed"
    with pytest.raises(registry.PluginError):
        listing._loaded(replace(entry, name="json"))
