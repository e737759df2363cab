"""The contract of a product: its table, its definition, its laws, and every exact way to compute it."""

import pytest
import torch
from torch import Tensor

from zoo.algebras import Algebra, Laws, algebra, laws, unit
from zoo.kernels import axis_layout, real_matrix
from zoo.kernels.factors import factorize
from zoo.testing import definition
from zoo.testing.definition import multiply_elements


class Subject:
    """The algebra under test.

    Attributes:
        spec: Its spec; or override `algebra`.
        laws: The laws the author promises; None promises none, as for a rule that is learned.
    """

    spec: str = ""
    laws: Laws | None = None

    def algebra(self) -> Algebra:
        """Create the algebra, a new object at every call."""
        return algebra(self.spec)

    def rule(self) -> Algebra:
        """Create the algebra in float64, where a law that holds leaves no visible rounding."""
        return self.algebra().double()


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
    """A product equals its definition and obeys the laws that are claimed for it."""

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


class KernelContract(Subject):
    """The factors and the block matrix compute the product of the table, and so do their gradients."""

    def test_factors_rebuild_the_table(self) -> None:
        """The factors rebuild the table exactly, with no more multiplications than it has pairs that are not zero."""
        table = self.rule().structure.detach()
        factors = factorize(table)
        terms = zip(factors.left, factors.right, factors.result, strict=True)
        rebuilt = sum((torch.einsum("i,j,k->ijk", u, v, w) for u, v, w in terms), torch.zeros_like(table))
        assert torch.equal(rebuilt, table)
        assert factors.rank <= table.any(dim=-1).sum()

    def test_block_is_the_product(self) -> None:
        """The real matrix of w does to x what the products of their elements do, in either axis' blocks and with padding."""
        n = self.rule().n
        for channels, blocks in (((2 * n, 3 * n), (1, 1)), ((10, 7), (1, 1)), ((2 * (n + 1), 3 * n), (2, 3))):
            self.compare_block(channels, blocks)

    def compare_block(self, channels: tuple[int, int], blocks: tuple[int, int]) -> None:
        """Compare values and gradients, including the gradient to the table, which a learned rule needs."""
        a = self.rule().structure.detach().clone().requires_grad_()
        inp, out = (axis_layout(c, a.shape[0], b) for c, b in zip(channels, blocks, strict=True))
        w = draw(a.shape[0], out.elements, inp.elements).requires_grad_()
        x = draw(3, channels[0], seed=1).requires_grad_()
        seed = draw(3, channels[1], seed=2)
        expected = definition.linear(a, w, x, channels[1], blocks)
        result = x @ real_matrix(a, w, out, inp).T
        torch.testing.assert_close(result, expected)
        for ours, theirs in zip(gradients(result, seed, a, w, x), gradients(expected, seed, a, w, x), strict=True):
            torch.testing.assert_close(ours, theirs)


def gradients(y: Tensor, seed: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of <y, seed>."""
    return torch.autograd.grad(y, inputs, seed, retain_graph=True)
