"""Test dual numbers with the contract of all algebras and with their defining properties."""

import pytest
import torch

from zoo import registry
from zoo.algebras import Laws, algebra
from zoo.testing import AlgebraContract

# The zoo's own tests collect this folder even if the plugin is not installed; your repository does not need this line.
if not any(entry.distribution == "zoo-dual-numbers" for entry in registry.entries("algebras")):
    pytest.skip("zoo-dual-numbers is not installed: pip install plugins/example_dual_numbers", allow_module_level=True)


class TestDual(AlgebraContract):
    """Inherit tests of values, gradients, layers and saving; the laws are declared here."""

    spec = "dual"
    laws = Laws(unital=True, commutative=True, associative=True, alternative=True, normed=False)


def test_eps_squared_is_zero() -> None:
    """Test the defining relation, and that eps itself is not zero."""
    product, eps = algebra("dual"), torch.tensor([0.0, 1.0])
    assert torch.equal(product(eps, eps), torch.zeros(2))
    assert torch.equal(product(torch.tensor([1.0, 0.0]), eps), eps)


def test_the_dual_part_is_the_derivative() -> None:
    """Test f(a + eps) = a^3 + 3 a^2 eps for f(x) = x^3."""
    product, x = algebra("dual"), torch.tensor([5.0, 1.0])
    assert product(product(x, x), x).tolist() == [125.0, 75.0]
