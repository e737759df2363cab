"""Layers on algebra elements: the product, the norm and the readouts."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.algebras import algebra
from zoo.errors import InputError
from zoo.layers import ElementNorm, Readout
from zoo.layers.elements import Product, TokenBatchNorm, norm
from zoo.testing import definition
from zoo.testing.backbone import installed_algebras


@pytest.mark.parametrize("spec", installed_algebras())
@pytest.mark.parametrize("places", [1, 2])
def test_it_is_the_product_of_every_pair_of_elements(spec, places):
    layer = Product(algebra(spec), places * algebra(spec).n).double()
    x, y = torch.randn(2, 3, layer.dim, dtype=torch.float64)
    for row, result in enumerate(layer(x, y)):
        for place in range(places):
            left, right = x[row, place::places], y[row, place::places]
            expected = definition.multiply_elements(layer.algebra.structure, left, right)
            torch.testing.assert_close(result[place::places].tolist(), expected)


def test_over_the_reals_it_is_the_entrywise_product():
    x, y = torch.randn(2, 3, 7)
    assert torch.equal(Product(algebra("real"), 7)(x, y), x * y)


def test_complex_is_torchs_complex():
    x, y = torch.randn(2, 3, 8)
    z = torch.complex(*x.chunk(2, -1)) * torch.complex(*y.chunk(2, -1))
    torch.testing.assert_close(Product(algebra("complex"), 8)(x, y), torch.cat([z.real, z.imag], -1))


@pytest.mark.parametrize("spec", ["complex", "quaternion", "sedenion", "phm-3"])
def test_any_size_is_padded_inside_and_cut(spec):
    rule = algebra(f"{spec}(learned=false)" if spec == "phm-3" else spec)
    layer = Product(rule, 7)
    whole = -(-7 // rule.n) * rule.n
    x, y = torch.randn(2, 4, 5, 7)
    wide = layer.algebra(F.pad(x, (0, whole - 7)), F.pad(y, (0, whole - 7)))
    assert torch.equal(layer(x, y), wide[..., :7])


def test_only_a_learned_rule_has_parameters():
    assert list(Product(algebra("quaternion"), 8).parameters()) == []
    layer = Product(algebra("phm-4"), 8)
    layer(torch.randn(3, 8), torch.randn(3, 8)).sum().backward()
    assert [p.numel() for p in layer.parameters()] == [64]
    assert layer.algebra.structure.grad.abs().sum() > 0


def test_bad_sizes_are_one_line():
    with pytest.raises(InputError, match="dim=0"):
        Product(algebra("complex"), 0)
    for x, y in ((torch.ones(2, 7), torch.ones(2, 8)), (torch.ones(2, 8), torch.ones(2, 9))):
        with pytest.raises(InputError, match="have 8 channels"):
            Product(algebra("complex"), 8)(x, y)


def test_over_the_reals_it_is_torchs_rms_norm():
    ours, theirs = ElementNorm(12, 1), nn.RMSNorm(12, eps=1e-6)
    gain, x = torch.rand(12), torch.randn(3, 12)
    ours.gain.data, theirs.weight.data = gain, gain.clone()
    torch.testing.assert_close(ours(x), theirs(x))


def test_components_of_an_element_are_scaled_alike():
    large = torch.full((2, 12), 400.0, dtype=torch.float16)
    torch.testing.assert_close(ElementNorm(12, 4).half()(large), torch.ones_like(large))
    layer = ElementNorm(12, 4)
    layer.gain.data = torch.tensor([1.0, 2.0, 3.0])
    x = torch.randn(5, 12)
    ratio = (layer(x) / x).view(5, 4, 3)
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
    torch.testing.assert_close(ratio[:, 0] / ratio[:, 0, :1], layer.gain.detach().expand(5, 3))


@pytest.mark.parametrize(("spec", "commutes"), [("quaternion", True), ("octonion", True), ("sedenion", False)])
def test_commutes_with_unit_elements_of_a_normed_algebra(spec, commutes):
    torch.manual_seed(0)
    product = algebra(spec).double()
    n = product.n
    layer = ElementNorm(3 * n, n).double()
    x, q = torch.randn(6, 3 * n, dtype=torch.float64), nn.functional.normalize(torch.randn(n, dtype=torch.float64), dim=0)
    q = q.repeat_interleave(3).expand_as(x)
    assert torch.allclose(layer(product(q, x)), product(q, layer(x))) == commutes
    assert not torch.allclose(nn.LayerNorm(3 * n).double()(product(q, x)), product(q, nn.LayerNorm(3 * n).double()(x)))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("layer", nn.LayerNorm),
        ("rms", nn.RMSNorm),
        ("batch", TokenBatchNorm),
        ("batch1d", nn.BatchNorm1d),
        ("batch2d", nn.BatchNorm2d),
        ("element", ElementNorm),
    ],
)
def test_kinds(kind, expected):
    made = norm(kind, 12, 4)
    assert type(made) is expected
    assert sum(p.numel() for p in made.parameters()) == {"layer": 24, "rms": 12, "element": 3}.get(kind, 24)


def test_batch_norm_of_tokens_takes_each_part_by_itself_and_leaves_padding_out():
    torch.manual_seed(0)
    layer, x = TokenBatchNorm(4).double(), torch.randn(3, 5, 4, dtype=torch.float64) * 3 + 1
    mask = torch.arange(5) < torch.tensor([[5], [2], [3]])
    real, imaginary = (torch.cat([row[kept] for row, kept in zip(part, mask, strict=True)]) for part in x.chunk(2, -1))
    expected = [(part - part.mean(0)) / (part.var(0, unbiased=False) + layer.eps).sqrt() for part in (real, imaginary)]
    y = layer(x, mask)
    torch.testing.assert_close(y[mask], torch.cat(expected, -1))
    assert (y[~mask] == 0).all()
    torch.testing.assert_close(layer.running_mean, 0.1 * torch.cat([real.mean(0), imaginary.mean(0)]))
    layer.eval()
    assert torch.equal(layer(x, mask)[:1, :2], layer(x[:1, :2]))


def test_bad_input_is_one_line():
    with pytest.raises(InputError, match="unknown norm 'group': use layer, rms, batch, batch1d, batch2d, element"):
        norm("group", 12, 4)
    with pytest.raises(InputError, match="10 features are not whole elements of an algebra with n = 4"):
        ElementNorm(10, 4)


def test_zeros_stay_zeros():
    assert ElementNorm(8, 4)(torch.zeros(2, 8)).abs().max() == 0


def test_repr():
    assert repr(ElementNorm(12, 4)) == "ElementNorm(12, n=4)"


def test_channels_change_nothing():
    x = torch.randn(2, 12)
    assert Readout(4)(x) is x
    assert Readout(4).features(12) == 12


def test_complex_modulus_and_scalar_are_torchs():
    x = torch.randn(2, 5, 12)
    z = torch.complex(*x.chunk(2, -1))
    torch.testing.assert_close(Readout(2, "modulus")(x), z.abs())
    torch.testing.assert_close(Readout(2, "scalar")(x), z.real)
    assert Readout(2, "modulus").features(12) == Readout(2, "scalar").features(12) == 6


@pytest.mark.parametrize(("spec", "same"), [("quaternion", True), ("octonion", True), ("sedenion", False)])
def test_modulus_is_invariant_in_a_normed_algebra(spec, same):
    torch.manual_seed(0)
    product = algebra(spec).double()
    n = product.n
    x, q = torch.randn(4, 2 * n, dtype=torch.float64), nn.functional.normalize(torch.randn(n, dtype=torch.float64), dim=0)
    q = q.repeat_interleave(2).expand_as(x)
    read = Readout(n, "modulus")
    assert torch.allclose(read(product(q, x)), read(x)) == same
    assert not torch.allclose(Readout(n, "scalar")(product(q, x)), Readout(n, "scalar")(x))


def test_unknown_kind_is_one_line():
    with pytest.raises(InputError, match="unknown readout 'norm': use channels, modulus, scalar"):
        Readout(4, "norm")


def test_repr_of_a_readout():
    assert repr(Readout(4, "scalar")) == "Readout(n=4, scalar)"
