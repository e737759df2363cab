"""Every exact way to multiply, compared with the definition: values and gradients."""

import torch
from torch import Tensor

from zoo.kernels import axis_layout, real_matrix
from zoo.kernels.factors import factorize
from zoo.testing import definition
from zoo.testing.product import draw
from zoo.testing.subject import Subject


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

    def test_factors_multiply_like_the_definition(self) -> None:
        """X y = result^T ((left x) * (right y)), with the gradients of the definition."""
        product = self.rule()
        factors = factorize(product.structure)

        def factored(x: Tensor, y: Tensor) -> Tensor:
            return ((x @ factors.left.T) * (y @ factors.right.T)) @ factors.result

        x, y = (t.requires_grad_() for t in draw(2, 3, product.n).unbind())
        seed = draw(3, product.n, seed=1)
        expected = product(x, y)
        torch.testing.assert_close(factored(x, y), expected)
        for ours, theirs in zip(gradients(factored(x, y), seed, x, y), gradients(expected, seed, x, y), strict=True):
            torch.testing.assert_close(ours, theirs)
        assert torch.autograd.gradcheck(factored, (x, y), fast_mode=True)

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

    def test_block_passes_gradcheck(self) -> None:
        """The gradient of the block matrix, to the table and to the weights, is its numerical one."""
        a = self.rule().structure.detach().clone().requires_grad_()
        inp, out = axis_layout(10, a.shape[0]), axis_layout(7, a.shape[0])
        w = draw(a.shape[0], out.elements, inp.elements).requires_grad_()
        assert torch.autograd.gradcheck(lambda a, w: real_matrix(a, w, out, inp), (a, w), fast_mode=True)


def gradients(y: Tensor, seed: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of <y, seed>."""
    return torch.autograd.grad(y, inputs, seed, retain_graph=True)
