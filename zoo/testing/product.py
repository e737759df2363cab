"""The product itself: its table, its definition, its laws."""

import pytest
import torch
from torch import Tensor

from zoo.algebras import Algebra, Laws, laws, unit
from zoo.testing.definition import multiply_elements
from zoo.testing.subject import Subject


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Draw standard normals in float64, the same ones for the same seed."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def observe(product: Algebra) -> Laws:
    """Try the laws on random elements; a polynomial identity that fails somewhere fails almost everywhere."""
    x, y, z = draw(3, 5, product.n)

    def same(left: Tensor, right: Tensor) -> bool:
        return torch.allclose(left, right, atol=1e-6 * left.abs().max().item(), rtol=0)

    u = unit(product.structure)
    e = x if u is None else u.expand_as(x)
    associative = same(product(product(x, y), z), product(x, product(y, z)))
    return Laws(
        unital=same(product(e, y), y) and same(product(y, e), y),
        commutative=same(product(x, y), product(y, x)),
        associative=associative,
        alternative=same(product(product(x, x), y), product(x, product(x, y)))
        and same(product(product(y, x), x), product(y, product(x, x))),
        normed=same(product(x, y).norm(dim=-1), x.norm(dim=-1) * y.norm(dim=-1)),
    )


class ProductContract(Subject):
    """A product is bilinear, equals its definition and obeys the laws that are claimed for it."""

    def test_structure_is_finite_and_cubic(self) -> None:
        """The structure tensor is [n, n, n] and holds numbers."""
        algebra = self.algebra()
        assert algebra.structure.shape == (algebra.n, algebra.n, algebra.n)
        assert algebra.structure.isfinite().all()
        assert algebra.structure.is_floating_point()

    def test_product_is_bilinear(self) -> None:
        """(2 x + y) z = 2 x z + y z, and the same on the right."""
        product = self.rule()
        x, y, z = draw(3, 4, 2 * product.n)
        torch.testing.assert_close(product(2 * x + y, z), 2 * product(x, z) + product(y, z))
        torch.testing.assert_close(product(z, 2 * x + y), 2 * product(z, x) + product(z, y))

    def test_product_is_the_definition(self) -> None:
        """Features [..., C] are multiplied element by element, component-major."""
        product = self.rule()
        n = product.n
        x, y = draw(2, 3, 2 * n)
        z = product(x, y)
        for row in range(3):
            for place in range(2):
                expected = multiply_elements(product.structure, x[row, place::2], y[row, place::2])
                torch.testing.assert_close(z[row, place::2].tolist(), expected)

    def test_laws_are_as_declared(self) -> None:
        """What `zoo.algebras.laws` computes from the table is what the author promises."""
        if self.laws is None:
            pytest.skip("no laws are declared")
        assert laws(self.algebra()) == self.laws

    def test_laws_show_in_products(self) -> None:
        """What `zoo.algebras.laws` computes from the table is what products of random elements show."""
        product = self.rule()
        assert observe(product) == laws(product)

    def test_unit_acts_as_one(self) -> None:
        """There is an element that changes nothing, if and only if the product is unital."""
        product = self.rule()
        u = unit(product.structure)
        assert (u is not None) == laws(product).unital
        if u is not None:
            x = draw(3, product.n)
            torch.testing.assert_close(product(u.expand_as(x), x), x, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(product(x, u.expand_as(x)), x, rtol=1e-6, atol=1e-6)

    def test_norm_is_multiplicative_if_normed(self) -> None:
        """|x y| = |x| |y| in a normed algebra, and in no other."""
        product = self.rule()
        x, y = draw(2, 9, product.n)
        lengths = product(x, y).norm(dim=-1), x.norm(dim=-1) * y.norm(dim=-1)
        assert torch.allclose(*lengths, rtol=1e-6) == (self.laws or laws(product)).normed
