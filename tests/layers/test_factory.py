"""The layer factory: roles, scopes and options."""

import pytest
from torch import nn

from tests.errors import raises
from zoo.algebras import algebra
from zoo.layers import Layers
from zoo.layers.factory import BODY, ROLES, parse_scope


@pytest.mark.parametrize(
    ("scope", "roles"),
    [
        ("all", BODY),
        ("attention", {"attention"}),
        ("attention+ffn", {"attention", "ffn"}),
        ("all+head", BODY | {"head"}),
        ("embed", {"embed"}),
    ],
)
def test_scopes(scope, roles):
    assert parse_scope(scope) == roles
    layers = Layers("quaternion", scope)
    for role in ROLES:
        assert layers.linear(8, 8, role=role).algebra.n == (4 if role in roles else 1), role


@pytest.mark.parametrize("scope", ["al", "attention+", "attention,ffn", "", "all+tail"])
def test_unknown_scope(scope):
    with raises("unknown", f"'{scope}'"):
        Layers("quaternion", scope)


def test_unknown_role_and_initialization():
    with raises("unknown", "'gate'"):
        Layers("complex").linear(8, 8, role="gate")
    with raises("unknown", "'xavier'"):
        Layers("complex", init="xavier")


def test_stem_embedding_and_head_are_real_by_default():
    layers = Layers("quaternion")
    assert layers.embedding(12, 8).algebra.n == 1
    assert Layers("quaternion", "all+embed").embedding(12, 8, padding_idx=3).algebra.n == 4
    assert layers.linear(8, 3, role="head").algebra.n == layers.conv2d(3, 8, 2, role="stem").algebra.n == 1


def test_options_are_passed_to_the_layers():
    layers = Layers("quaternion", init="glorot")
    one = layers.linear(8, 24, False, role="attention", blocks=(1, 3))
    assert (one.out.blocks, one.bias, one.weight_module.init) == (3, None, "glorot")
    two = layers.conv1d(8, 16, 3, stride=2, groups=2)
    assert (two.stride, two.groups, two.weight_module.init) == ((2,), 2, "glorot")
    three = layers.conv2d(8, 16, (3, 1), padding="same", bias=False)
    assert (three.kernel_size, three.padding, three.bias) == ((3, 1), "same", None)


def test_learned_products_are_separate_or_shared():
    apart = Layers("phm-2")
    assert apart.linear(4, 4, role="ffn").algebra is not apart.linear(4, 4, role="ffn").algebra
    together = Layers("phm(n=2, shared=true)")
    assert together.linear(4, 4, role="ffn").algebra is together.conv1d(4, 4, 1).algebra


def test_norms_use_n():
    layers = Layers(algebra("quaternion"))
    assert isinstance(layers.norm(8), nn.LayerNorm)
    assert layers.norm(8, "element").n == 4
