"""Norms: torch's own by name, and the one that keeps elements whole."""

import pytest
import torch
from torch import nn

from zoo.algebras import algebra
from zoo.errors import InputError
from zoo.layers import ElementNorm
from zoo.layers.elements import norm


def test_over_the_reals_it_is_torchs_rms_norm():
    ours, theirs = ElementNorm(12, 1), nn.RMSNorm(12, eps=1e-6)
    gain, x = torch.rand(12), torch.randn(3, 12)
    ours.gain.data, theirs.weight.data = gain, gain.clone()
    torch.testing.assert_close(ours(x), theirs(x))


def test_components_of_an_element_are_scaled_alike():
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
        ("batch1d", nn.BatchNorm1d),
        ("batch2d", nn.BatchNorm2d),
        ("element", ElementNorm),
    ],
)
def test_kinds(kind, expected):
    made = norm(kind, 12, 4)
    assert type(made) is expected
    assert sum(p.numel() for p in made.parameters()) == {"layer": 24, "rms": 12, "element": 3}.get(kind, 24)


def test_bad_input_is_one_line():
    with pytest.raises(InputError, match="unknown norm 'group': use layer, rms, batch1d, batch2d, element"):
        norm("group", 12, 4)
    with pytest.raises(InputError, match="10 features are not whole elements of an algebra with n = 4"):
        ElementNorm(10, 4)


def test_zeros_stay_zeros():
    assert ElementNorm(8, 4)(torch.zeros(2, 8)).abs().max() == 0


def test_repr():
    assert repr(ElementNorm(12, 4)) == "ElementNorm(12, n=4)"
