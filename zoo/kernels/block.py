"""The block kernel: left multiplication as one real matrix, the definition that every kernel is tested against."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.base import BYTES, CALL, TRAFFIC, AxisLayout, Geometry, Kernel, Operand, Work, real_cost

SMALL = 2**18
"""A matrix of no more numbers is assembled in one thread, and kept for the backward pass."""
LARGE = 2**22
"""Numbers of a larger matrix that are worked on at a time."""


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


def differentiable_gradients(y: Tensor, inputs: Sequence[Tensor], needs: Sequence[bool], g: Tensor) -> list[Tensor | None]:
    """Return gradients that can be differentiated again, of a ``y`` computed by the definition; None where not needed."""
    wanted = [tensor for tensor, needed in zip(inputs, needs, strict=True) if needed]
    gradients = iter(torch.autograd.grad(y, wanted, g, create_graph=True) if wanted else ())
    return [next(gradients) if needed else None for needed in needs]


class Block(Kernel):
    """One product with the real matrix, which can compute everything."""

    name = "block"

    def can(self, work: Work) -> bool:
        """Return True: this is the definition."""
        return True

    def cost(self, work: Work) -> float:
        """Predict the real layer, and assembling the matrix and its gradient."""
        if work.prepared:
            return real_cost(work)
        passes = 6 if work.training else 3
        moved = passes * BYTES * work.area * work.inp.channels * work.out.channels
        return real_cost(work) + moved / TRAFFIC + 8 * CALL

    def prepare(self, weight: Operand) -> Tensor:
        """Assemble the real matrix, [out, in, *kernel]."""
        return real_matrix(weight.action(), weight.components, weight.out, weight.inp).contiguous()

    def bind(self, weight: Operand, prepared: Any = None) -> Callable[[Tensor, Tensor | None], Tensor] | None:
        """Return the product with a matrix that is cached."""
        return None if prepared is None else lambda x, bias: F.linear(x, prepared, bias)

    def apply(
        self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any = None, geometry: Geometry | None = None
    ) -> Tensor:
        """Multiply by the matrix; a large one is assembled again for the backward pass."""
        if geometry is not None:
            matrix = self.prepare(weight) if prepared is None else prepared
            return torch.convolution(x, matrix, bias, *geometry, False, [0] * (x.dim() - 2), 1)
        if prepared is not None:
            return F.linear(x, prepared, bias)
        return block_linear(x, weight.components, weight.action(), weight.out, weight.inp, bias)


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
        matrix = _assembled(structure, w, out, inp, keep=small)
        ctx.save_for_backward(x, w, structure, matrix if small else None)
        ctx.layouts = out, inp
        return F.linear(x, matrix, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients, which can be differentiated again."""
        x, w, structure, matrix = ctx.saved_tensors
        out, inp = ctx.layouts
        of_x, of_w, of_structure, of_bias = ctx.needs_input_grad[:4]
        gx = gw = gs = None
        if of_x:
            if matrix is None or torch.is_grad_enabled():
                matrix = _assembled(structure, w, out, inp)
            gx = g @ matrix
        matrix = None  # before its gradient takes as much memory
        if of_w or of_structure:
            gw, gs = _gradients(structure, w, g, x, out, inp, of_structure)
        return gx, gw if of_w else None, gs, g.sum(0) if of_bias else None, None, None


def _assembled(structure: Tensor, w: Tensor, out: AxisLayout, inp: AxisLayout, keep: bool = False) -> Tensor:
    """Compute the real matrix; a large one in tiles, unless it is to be differentiated."""
    if torch.is_grad_enabled() or w.device.type != "cpu" or keep:
        return real_matrix(structure, w, out, inp)
    n, m = out.n, len(w)
    by_pair, flat = structure.permute(2, 1, 0).reshape(n * n, m), w.reshape(m, -1)
    sizes = out.blocks, n, out.width, inp.blocks, n, inp.width
    matrix = w.new_empty(sizes)
    for block, rows, columns in _tiles(out, inp):
        shape = n, n, rows.stop - rows.start, inp.blocks, inp.width
        parts = w.new_empty(math.prod(shape))
        torch.mm(by_pair, flat[:, columns], out=parts.view(n * n, -1))
        matrix[block, :, rows].copy_(parts.view(shape).permute(0, 2, 3, 1, 4))
    whole = matrix.view(out.blocks, n * out.width, inp.blocks, n * inp.width)
    return whole[:, : out.size, :, : inp.size].reshape(out.channels, inp.channels)


def _gradients(
    structure: Tensor, w: Tensor, g: Tensor, x: Tensor, out: AxisLayout, inp: AxisLayout, of_structure: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the components and, if asked for, of the structure from the rows g and x."""
    (m, n, _), small = structure.shape, out.channels * inp.channels <= SMALL
    by_part, flat = structure.transpose(1, 2).reshape(m, n * n), w.reshape(m, -1)
    if torch.is_grad_enabled() or w.device.type != "cpu" or small:
        g_matrix = g.T @ x
        parts = _parts_of_matrix(g_matrix, out, inp).movedim(0, 2).reshape(n * n, -1)
        gs = (parts @ flat.T).T.reshape(m, n, n).transpose(1, 2) if of_structure else None
        return (by_part @ parts).view_as(w), gs
    matrix = w.new_empty(out.channels, inp.channels)
    parts_of_matrix = _parts_of_matrix(torch.mm(g.T, x, out=matrix), out, inp)
    gw, gs = w.new_empty(flat.shape), w.new_zeros(n * n, m)
    for block, rows, columns in _tiles(out, inp):
        tile = parts_of_matrix[block, :, :, rows]
        parts = tile.contiguous()
        torch.mm(by_part, parts.view(n * n, -1), out=gw[:, columns])
        if of_structure:
            gs.addmm_(parts.view(n * n, -1), flat[:, columns].T)  # this way round: up to 1.6 times as fast
    return gw.view_as(w), gs.T.reshape(m, n, n).transpose(1, 2) if of_structure else None


def _parts_of_matrix(matrix: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    """View a real matrix as its parts, [out blocks, n, n, width, in blocks, width]; what fills up an element is zero."""
    matrix = matrix.view(out.blocks, out.size, inp.blocks, inp.size)
    if (missing := (out.n * inp.width - inp.size, out.n * out.width - out.size)) != (0, 0):
        matrix = F.pad(matrix, (0, missing[0], 0, 0, 0, missing[1]))
    return matrix.view(out.blocks, out.n, out.width, inp.blocks, out.n, inp.width).permute(0, 1, 4, 2, 3, 5)


def _tiles(out: AxisLayout, inp: AxisLayout) -> Iterator[tuple[int, slice, slice]]:
    """Cut the output elements into tiles: their block, their places in it, and those of their components, laid out flat."""
    step = max(1, LARGE // (out.n**2 * inp.elements))
    for block in range(out.blocks):
        for start in range(0, out.width, step):
            rows = slice(start, min(start + step, out.width))
            first, last = ((block * out.width + row) * inp.elements for row in (rows.start, rows.stop))
            yield block, rows, slice(first, last)
