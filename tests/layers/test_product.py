"""The product of two feature vectors."""

import pytest
import torch
from torch.nn import functional as F

from zoo.algebras import algebra
from zoo.errors import InputError
from zoo.layers.elements import Product
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
