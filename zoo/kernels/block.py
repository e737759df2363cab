"""The definition every kernel is tested against: left multiplication by the weight as one real matrix, and its channel axes."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.errors import InputError
from zoo.kernels.threads import alone_if

SMALL = 2**18
"""A matrix of no more numbers is assembled in one thread, and kept for the backward pass."""


class AxisLayout(NamedTuple):
    """A channel axis that holds ``blocks`` vectors side by side, each of them component-major by itself.

    One block of C / blocks real channels is [n, width] with width = ceil(C / (blocks n)), cut to its first C / blocks entries
    if n does not divide it: the missing channels are zeros that are never computed, but their weights exist and are counted.

    There is 1 block in a residual stream, 4 for gates, 3 * heads for a fused qkv.

    Example:
        >>> AxisLayout(10, n=4).width
        3
    """

    channels: int
    n: int
    blocks: int = 1

    @property
    def size(self) -> int:
        """Real channels of one block."""
        return self.channels // self.blocks

    @property
    def width(self) -> int:
        """Algebra elements of one block, the last ones padded if need be."""
        return -(-self.size // self.n)

    @property
    def elements(self) -> int:
        """Algebra elements of the whole axis: the size of this axis in the component weights."""
        return self.blocks * self.width


def axis_layout(channels: int, n: int, blocks: int = 1) -> AxisLayout:
    """Return an `AxisLayout`, or raise `InputError` if there is no channel or the blocks do not share the channels evenly."""
    if channels < 1 or blocks < 1 or channels % blocks:
        raise InputError(f"{channels} channels do not split into {blocks} equal blocks of at least one channel")
    return AxisLayout(channels, n, blocks)


def real_matrix(structure: Tensor, components: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Write left multiplication by w as one real matrix.

    With e_i e_j = sum_k A[i, j, k] e_k, the block at row k, column j is

        M[k, j] = sum_i A[i, j, k] w[i]

    in every pair of an output and an input block of the two layouts.

    The structure A is [m, n, n], with m = n or less if the weights lie in a subspace; w is [m, out.elements, in.elements,
    *kernel], and the real matrix [out.channels, in.channels, *kernel], as torch expects it.

    Example:
        >>> complex_numbers = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])
        >>> one_plus_two_i = torch.tensor([[[1.0]], [[2.0]]])
        >>> real_matrix(complex_numbers, one_plus_two_i, AxisLayout(2, n=2), AxisLayout(2, n=2))
        tensor([[ 1., -2.],
                [ 2.,  1.]])
    """
    n, m, kernel = out.n, components.shape[0], components.shape[3:]
    # One product of small matrices and one copy: einsum makes more copies on the way, forward and backward.
    parts = structure.permute(2, 1, 0).reshape(n * n, m) @ components.reshape(m, -1)
    parts = parts.view(n, n, out.blocks, out.width, inp.blocks, inp.width, -1)
    matrix = parts.permute(2, 0, 3, 4, 1, 5, 6).reshape(out.blocks, n * out.width, inp.blocks, n * inp.width, -1)
    return matrix[:, : out.size, :, : inp.size].reshape(out.channels, inp.channels, *kernel)


def block_linear(
    x: Tensor, w: Tensor, structure: Tensor, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    """Multiply rows by the real matrix: [..., in] to [..., out], for w [m, out elements, in elements], structure [m, n, n].

    It computes what ``F.linear(x, real_matrix(...), bias)`` does, as one step of autograd: a matrix that is not `SMALL` is
    assembled again for the backward pass and not kept for it.
    """
    y: Tensor = _Block.apply(x.reshape(-1, inp.channels), w, structure, bias, out, inp)
    return y.view(*x.shape[:-1], out.channels)


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, structure: Tensor, bias: Tensor | None, out: AxisLayout, inp: AxisLayout
    ) -> Tensor:
        small = out.channels * inp.channels <= SMALL
        matrix = alone_if(small, lambda: real_matrix(structure, w, out, inp))
        ctx.save_for_backward(x, w, structure, matrix if small else None)
        ctx.layouts = out, inp
        return F.linear(x, matrix, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients, which can be differentiated again."""
        x, w, structure, matrix = ctx.saved_tensors
        out, inp = ctx.layouts
        of_x, of_w, of_structure, of_bias = ctx.needs_input_grad[:4]
        (m, n, _), small = structure.shape, out.channels * inp.channels <= SMALL
        gx = gw = gs = None
        if of_x:
            if matrix is None or torch.is_grad_enabled():
                matrix = alone_if(small, lambda: real_matrix(structure, w, out, inp))
            gx = g @ matrix
        matrix = None  # before its gradient takes as much memory
        if of_w or of_structure:
            g_matrix = g.T @ x
            parts = alone_if(small, lambda: _parts_of_matrix(g_matrix, out, inp))
            del g_matrix
            if of_w:
                by_part = structure.transpose(1, 2).reshape(m, n * n)
                gw = alone_if(small, lambda: (by_part @ parts).view_as(w))
            if of_structure:
                gs = (w.reshape(m, -1) @ parts.T).view(m, n, n).transpose(1, 2)
        return gx, gw, gs, g.sum(0) if of_bias else None, None, None


def _parts_of_matrix(matrix: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    """Cut a real matrix into its n^2 parts, [n k + j, all elements]; what fills up an element is zero."""
    n = out.n
    matrix = matrix.view(out.blocks, out.size, inp.blocks, inp.size)
    if (missing := (n * inp.width - inp.size, n * out.width - out.size)) != (0, 0):
        matrix = F.pad(matrix, (0, missing[0], 0, 0, 0, missing[1]))
    parts = matrix.view(out.blocks, n, out.width, inp.blocks, n, inp.width).permute(1, 4, 0, 2, 3, 5)
    return parts.reshape(n * n, -1)
