"""Plugins registered in the running process: the same as installed ones, in every place where a spec is read."""

import pytest
import torch

import zoo
from zoo import registry
from zoo.errors import InputError


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


def test_it_is_listed_with_its_summary_and_removed():
    zoo.register("zoo.algebras", "golden", golden)
    entry = next(entry for entry in registry.entries("algebras") if entry.name == "golden")
    assert (entry.distribution, registry.summary(entry)) == ("local", "Golden integers over the reals: e * e = e + 1.")
    assert registry.probe(entry) is None
    registry.unregister("algebras", "golden")
    with pytest.raises(InputError, match="unknown algebra 'golden'"):
        zoo.algebra("golden")


def test_as_a_decorator_with_options_that_are_checked():
    @zoo.register("algebras", "scaled")
    def scaled(factor: float = 1.0) -> zoo.Algebra:
        return zoo.Algebra(torch.full((1, 1, 1), factor))

    assert scaled(3.0).structure.item() == 3
    assert zoo.algebra("scaled(factor=2.0)").structure.item() == 2
    with pytest.raises(InputError, match="did you mean 'factor'"):
        zoo.algebra("scaled(facto=2.0)")


def test_a_second_registration_replaces_the_first():
    zoo.register("algebras", "golden", golden)
    zoo.register("algebras", "golden", lambda: zoo.Algebra(torch.ones(1, 1, 1)))
    assert zoo.algebra("golden").n == 1


def test_a_name_of_an_installed_package_is_refused():
    with pytest.raises(InputError, match=r"there is algebra 'octonion' of hypercomplex-zoo .* under another name") as error:
        zoo.register("algebras", "octonion", golden)
    assert "\n" not in str(error.value)
    assert zoo.algebra("octonion").n == 8
    zoo.register("backbones", "octonion", golden)  # of another group


def test_a_name_that_a_package_brings_later_must_be_qualified(monkeypatch):
    monkeypatch.setenv("ZOO_PLUGINS", "off")
    monkeypatch.setattr("zoo.registry.catalogue.OURS", "nobody")
    zoo.register("algebras", "octonion", golden)
    monkeypatch.undo()
    with pytest.raises(InputError, match="write local:octonion or hypercomplex-zoo:octonion"):
        zoo.algebra("octonion")
    assert zoo.algebra("local:octonion").n == 2
    assert zoo.algebra("hypercomplex-zoo:octonion").n == 8


def test_zoo_plugins_hides_no_registered_plugin(monkeypatch):
    monkeypatch.setenv("ZOO_PLUGINS", "off")
    zoo.register("algebras", "golden", golden)
    assert zoo.algebra("golden").n == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("algebra", "x", golden), "unknown group 'algebra'"),
        (("algebras", "two words", golden), "'two words' cannot be a name in a spec"),
        (("algebras", 3, golden), "'3' cannot be a name"),
        (("algebras", "x", "zoo:golden"), "register a function that builds it, not str"),
    ],
)
def test_what_cannot_be_registered_is_refused(arguments, said):
    with pytest.raises(InputError, match=said):
        zoo.register(*arguments)
