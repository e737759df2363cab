"""Layers on algebra elements, and the layer factory: roles, scopes and options."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.errors import raises
from zoo.algebras import algebra
from zoo.layers import ElementNorm, Layers, Readout
from zoo.layers.elements import Product, TokenBatchNorm, norm
from zoo.layers.factory import BODY, ROLES, parse_scope


@pytest.mark.parametrize("spec", ["real", "complex", "quaternion", "sedenion", "phm(n=3, learned=false)"])
def test_product_pads_to_whole_elements(spec):
    layer = Product(algebra(spec), 7)
    more = -7 % layer.algebra.n
    x, y = torch.randn(2, 4, 5, 7)
    wide = layer.algebra(F.pad(x, (0, more)), F.pad(y, (0, more)))
    assert torch.equal(layer(x, y), wide[..., :7])


def test_element_norm_equals_rms_norm_over_the_reals():
    ours, theirs = ElementNorm(12, 1), nn.RMSNorm(12, eps=1e-6)
    gain, x = torch.rand(12), torch.randn(3, 12)
    ours.gain.data, theirs.weight.data = gain, gain.clone()
    torch.testing.assert_close(ours(x), theirs(x))


def test_element_norm_scales_all_components_of_an_element():
    large = torch.full((2, 12), 400.0, dtype=torch.float16)
    torch.testing.assert_close(ElementNorm(12, 4).half()(large), torch.ones_like(large))
    layer = ElementNorm(12, 4)
    layer.gain.data = torch.tensor([1.0, 2.0, 3.0])
    x = torch.randn(5, 12)
    ratio = (layer(x) / x).view(5, 4, 3)
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
    torch.testing.assert_close(ratio[:, 0] / ratio[:, 0, :1], layer.gain.detach().expand(5, 3))
    assert layer(torch.zeros(2, 12)).abs().max() == 0


@pytest.mark.parametrize(("spec", "is_normed"), [("quaternion", True), ("octonion", True), ("sedenion", False)])
def test_element_norm_and_modulus_with_unit_elements_of_normed_algebras(spec, is_normed):
    torch.manual_seed(0)
    product = algebra(spec).double()
    n = product.n
    x, q = torch.randn(6, 3 * n, dtype=torch.float64), F.normalize(torch.randn(n, dtype=torch.float64), dim=0)
    q = q.repeat_interleave(3).expand_as(x)
    layer, other = ElementNorm(3 * n, n).double(), nn.LayerNorm(3 * n).double()
    assert torch.allclose(layer(product(q, x)), product(q, layer(x))) == is_normed
    assert not torch.allclose(other(product(q, x)), product(q, other(x)))
    modulus, scalar = Readout(n, "modulus"), Readout(n, "scalar")
    assert torch.allclose(modulus(product(q, x)), modulus(x)) == is_normed
    assert not torch.allclose(scalar(product(q, x)), scalar(x))


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("layer", nn.LayerNorm, 24),
        ("rms", nn.RMSNorm, 12),
        ("batch", TokenBatchNorm, 24),
        ("element", ElementNorm, 3),
    ],
)
def test_norms_by_name(name, kind, count):
    layer = norm(name, 12, 4)
    assert type(layer) is kind
    assert sum(p.numel() for p in layer.parameters()) == count


def test_token_batch_norm_ignores_padding():
    torch.manual_seed(0)
    layer, x = TokenBatchNorm(4).double(), torch.randn(3, 5, 4, dtype=torch.float64) * 3 + 1
    mask = torch.arange(5) < torch.tensor([[5], [2], [3]])
    tokens = x[mask]
    y = layer(x, mask)
    torch.testing.assert_close(y[mask], (tokens - tokens.mean(0)) / (tokens.var(0, unbiased=False) + layer.eps).sqrt())
    assert (y[~mask] == 0).all()
    torch.testing.assert_close(layer.running_mean, 0.1 * tokens.mean(0))
    layer.eval()
    assert torch.equal(layer(x, mask)[:1, :2], layer(x[:1, :2]))


def test_readouts_equal_torch_complex_numbers():
    x = torch.randn(2, 5, 12)
    z = torch.complex(*x.chunk(2, -1))
    for name, expected in (("channels", x), ("modulus", z.abs()), ("scalar", z.real)):
        torch.testing.assert_close(Readout(2, name)(x), expected)


@pytest.mark.parametrize(
    ("build", "code", "value"),
    [
        (lambda: norm("group", 12, 4), "unknown", "'group'"),
        (lambda: ElementNorm(10, 4), "invalid", "n = 4"),
        (lambda: Readout(4, "norm"), "unknown", "'norm'"),
    ],
)
def test_invalid_sizes_and_names(build, code, value):
    with raises(code, value):
        build()


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
