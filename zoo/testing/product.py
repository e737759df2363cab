"""The test contract of a product: its definition, its laws and its kernels."""

import pytest
import torch
from torch import Tensor

from zoo.algebras import Algebra, Laws, algebra, laws, unit
from zoo.kernels import axis_layout, real_matrix
from zoo.kernels.factors import factorize
from zoo.testing import definition


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Draw standard normals in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def observe(product: Algebra) -> Laws:
    """Test the laws on random elements: a polynomial identity that does not hold fails almost everywhere."""
    x, y, z = draw(3, 5, product.n)

    def close(left: Tensor, right: Tensor) -> bool:
        return torch.allclose(left, right, atol=1e-6 * left.abs().max().item(), rtol=0)

    u = unit(product.structure)
    e = x if u is None else u.expand_as(x)
    return Laws(
        unital=close(product(e, y), y) and close(product(y, e), y),
        commutative=close(product(x, y), product(y, x)),
        associative=close(product(product(x, y), z), product(x, product(y, z))),
        alternative=close(product(product(x, x), y), product(x, product(x, y)))
        and close(product(product(y, x), x), product(y, product(x, x))),
        normed=close(product(x, y).norm(dim=-1), x.norm(dim=-1) * y.norm(dim=-1)),
    )


class ProductContract:
    """Tests of a product: its definition, its laws, its factors and its real matrix; see `zoo.testing.AlgebraContract`."""

    spec: str = ""
    laws: Laws | None = None

    def algebra(self) -> Algebra:
        """Create the algebra, a new object at every call."""
        return algebra(self.spec)

    def test_product_is_the_definition(self) -> None:
        """Features [..., C] are multiplied element by element, component-major."""
        product = self.algebra().double()
        n = product.n
        x, y = draw(2, 3, 2 * n)
        z = product(x, y)
        for row in range(3):
            for element in range(2):
                expected = definition.multiply(product.structure, x[row, element::2], y[row, element::2])
                torch.testing.assert_close(z[row, element::2], expected)

    def test_laws_are_as_declared(self) -> None:
        """The laws that `zoo.algebras.laws` computes are the declared ones."""
        if self.laws is None:
            pytest.skip("no laws are declared")
        assert laws(self.algebra()) == self.laws

    def test_laws_show_in_products(self) -> None:
        """The laws that `zoo.algebras.laws` computes hold for random elements, and no others."""
        product = self.algebra().double()
        assert observe(product) == laws(product)

    def test_factors_rebuild_the_table(self) -> None:
        """The factors reconstruct the structure tensor exactly, with at most one multiplication per nonzero pair."""
        table = self.algebra().double().structure.detach()
        factors = factorize(table)
        terms = zip(factors.left, factors.right, factors.result, strict=True)
        rebuilt = sum((torch.einsum("i,j,k->ijk", u, v, w) for u, v, w in terms), torch.zeros_like(table))
        assert torch.equal(rebuilt, table)
        assert factors.rank <= table.any(dim=-1).sum()

    def test_block_is_the_product(self) -> None:
        """The real matrix of w multiplies x element by element, with blocks and padding; values and gradients."""
        n = self.algebra().double().n
        for channels, blocks in (((2 * n, 3 * n), (1, 1)), ((10, 7), (1, 1)), ((2 * (n + 1), 3 * n), (2, 3))):
            a = self.algebra().double().structure.detach().clone().requires_grad_()
            inp, out = (axis_layout(c, n, b) for c, b in zip(channels, blocks, strict=True))
            w, x = draw(n, out.elements, inp.elements).requires_grad_(), draw(3, channels[0], seed=1).requires_grad_()
            compare(x @ real_matrix(a, w, out, inp).T, definition.linear(a, w, x, channels[1], blocks), a, w, x)


def compare(y: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Compare values, and the gradients of a random linear function of them."""
    torch.testing.assert_close(y, expected)
    seed = draw(*y.shape, seed=2)
    for ours, theirs in zip(*(torch.autograd.grad(t, inputs, seed, retain_graph=True) for t in (y, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)
