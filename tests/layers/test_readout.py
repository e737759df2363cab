"""From elements to real features."""

import pytest
import torch
from torch import nn

from zoo.algebras import algebra
from zoo.errors import InputError
from zoo.layers import Readout


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


def test_repr():
    assert repr(Readout(4, "scalar")) == "Readout(n=4, scalar)"
