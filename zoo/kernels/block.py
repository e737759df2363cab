"""The block kernel: left multiplication by one real matrix, the definition that all kernels are tested against."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.algebras import Factors
from zoo.kernels.base import BYTES, AxisLayout, Call, Geometry, Kernel, Operand, Work, real_cost

SMALL = 2**18  # size up to which a matrix is assembled at once and saved for the backward pass
LARGE = 2**22  # size of a tile of a larger matrix


def real_matrix(structure: Tensor, components: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Return the real matrix of left multiplication by w.

    With e_i e_j = sum_k A[i, j, k] e_k, the block at row k, column j is

        M[k, j] = sum_i A[i, j, k] w[i]

    for every pair of an output and an input block of the two layouts.

    The structure A is [m, n, n], with m < n for weights in a subspace; w is [m, out.elements, in.elements, *kernel], and the
    real matrix [out.channels, in.channels, *kernel].

    Example:
        >>> complex_numbers = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])
        >>> one_plus_two_i = torch.tensor([[[1.0]], [[2.0]]])
        >>> real_matrix(complex_numbers, one_plus_two_i, AxisLayout(2, n=2), AxisLayout(2, n=2))
        tensor([[ 1., -2.],
                [ 2.,  1.]])
    """
    n, m, kernel = out.n, components.shape[0], components.shape[3:]
    # One matrix product and one copy; einsum makes more copies, forward and backward.
    parts = structure.permute(2, 1, 0).reshape(n * n, m) @ components.reshape(m, -1)
    parts = parts.view(n, n, out.blocks, out.width, inp.blocks, inp.width, -1)
    matrix = parts.permute(2, 0, 3, 4, 1, 5, 6).reshape(out.blocks, n * out.width, inp.blocks, n * inp.width, -1)
    return matrix[:, : out.size, :, : inp.size].reshape(out.channels, inp.channels, *kernel)


def factored_definition(
    x: Tensor, w: Tensor, factors: Sequence[Tensor], bias: Tensor | None, out: AxisLayout, inp: AxisLayout
) -> Tensor:
    """Multiply rows by the real matrix of a product given by its factors, in differentiable operations."""
    matrix = real_matrix(Factors(*factors).reconstruct(), w, out, inp)
    return F.linear(x, matrix.to(x.dtype), bias)


def differentiable_gradients(y: Tensor, inputs: Sequence[Tensor], needs: Sequence[bool], g: Tensor) -> list[Tensor | None]:
    """Return differentiable gradients of a ``y`` that was computed by the definition; None where not needed."""
    differentiated = [tensor for tensor, needed in zip(inputs, needs, strict=True) if needed]
    gradients = iter(torch.autograd.grad(y, differentiated, g, create_graph=True) if differentiated else ())
    return [next(gradients) if needed else None for needed in needs]


class Block(Kernel):
    """The real matrix; supports every product."""

    name = "block"

    def can(self, work: Work) -> bool:
        """Return True."""
        return True

    def cost(self, work: Work) -> float:
        """Predict the real layer plus assembling the matrix and its gradient."""
        if work.prepared:
            return real_cost(work)
        passes = 6 if work.training else 3
        moved = passes * BYTES * work.area * work.inp.channels * work.out.channels
        return real_cost(work) + moved / work.speeds.traffic + 8 * work.speeds.call

    def prepare(self, weight: Operand) -> Tensor:
        """Assemble the real matrix, [out, in, *kernel]."""
        return real_matrix(weight.action(), weight.components, weight.out, weight.inp).contiguous()

    def bind(self, weight: Operand, prepared: Any = None) -> Call | None:
        """Return the product with the cached matrix."""
        return None if prepared is None else lambda x, bias: F.linear(x, prepared, bias)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any, geometry: Geometry | None) -> Tensor:
        """Multiply or convolve with the real matrix."""
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

    Equivalent to ``F.linear(x, real_matrix(...), bias)`` as one autograd node that saves only matrices up to `SMALL`; larger
    ones are reassembled in the backward pass.
    """
    y: Tensor = _Block.apply(x.reshape(-1, inp.channels), w, structure, bias, out, inp)
    return y.view(*x.shape[:-1], out.channels)


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, structure: Tensor, bias: Tensor | None, out: AxisLayout, inp: AxisLayout
    ) -> Tensor:
        small = out.channels * inp.channels <= SMALL
        matrix = _assemble(structure, w, out, inp, at_once=small)
        ctx.save_for_backward(x, w, structure, matrix if small else None)
        ctx.layouts = out, inp
        return F.linear(x, matrix, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return differentiable gradients."""
        x, w, structure, matrix = ctx.saved_tensors
        out, inp = ctx.layouts
        need_x, need_w, need_structure, need_bias = ctx.needs_input_grad[:4]
        gx = gw = gs = None
        if need_x:
            if matrix is None or torch.is_grad_enabled():
                matrix = _assemble(structure, w, out, inp)
            gx = g @ matrix
        matrix = None  # free its memory before the gradient is allocated
        if need_w or need_structure:
            gw, gs = _gradients(structure, w, g, x, out, inp, need_structure)
        return gx, gw if need_w else None, gs, g.sum(0) if need_bias else None, None, None


def _assemble(structure: Tensor, w: Tensor, out: AxisLayout, inp: AxisLayout, at_once: bool = False) -> Tensor:
    """Compute the real matrix: on a CPU without gradients in tiles, unless ``at_once``."""
    if torch.is_grad_enabled() or w.device.type != "cpu" or at_once:
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
    structure: Tensor, w: Tensor, g: Tensor, x: Tensor, out: AxisLayout, inp: AxisLayout, need_structure: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the components and, if needed, of the structure for rows g and x."""
    (m, n, _), small = structure.shape, out.channels * inp.channels <= SMALL
    by_part, flat = structure.transpose(1, 2).reshape(m, n * n), w.reshape(m, -1)
    if torch.is_grad_enabled() or w.device.type != "cpu" or small:
        g_matrix = g.T @ x
        parts = _parts_of_matrix(g_matrix, out, inp).movedim(0, 2).reshape(n * n, -1)
        gs = (parts @ flat.T).T.reshape(m, n, n).transpose(1, 2) if need_structure else None
        return (by_part @ parts).view_as(w), gs
    matrix = w.new_empty(out.channels, inp.channels)
    parts_of_matrix = _parts_of_matrix(torch.mm(g.T, x, out=matrix), out, inp)
    gw, gs = w.new_empty(flat.shape), w.new_zeros(n * n, m)
    for block, rows, columns in _tiles(out, inp):
        parts = parts_of_matrix[block, :, :, rows].contiguous().view(n * n, -1)
        torch.mm(by_part, parts, out=gw[:, columns])
        if need_structure:
            gs.addmm_(parts, flat[:, columns].T)  # up to 1.6 times as fast as the transposed product
    return gw.view_as(w), gs.T.reshape(m, n, n).transpose(1, 2) if need_structure else None


def _parts_of_matrix(matrix: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    """View a real matrix as [out blocks, n, n, out width, in blocks, in width], padded with zeros to whole elements."""
    matrix = matrix.view(out.blocks, out.size, inp.blocks, inp.size)
    if inp.is_padded or out.is_padded:
        matrix = F.pad(matrix, (0, out.n * inp.width - inp.size, 0, 0, 0, out.n * out.width - out.size))
    return matrix.view(out.blocks, out.n, out.width, inp.blocks, out.n, inp.width).permute(0, 1, 4, 2, 3, 5)


def _tiles(out: AxisLayout, inp: AxisLayout) -> Iterator[tuple[int, slice, slice]]:
    """Yield tiles of the output elements: the block, the elements in it, and the range of their flattened components."""
    step = max(1, LARGE // (out.n**2 * inp.elements))
    for block in range(out.blocks):
        for start in range(0, out.width, step):
            rows = slice(start, min(start + step, out.width))
            first, last = ((block * out.width + row) * inp.elements for row in (rows.start, rows.stop))
            yield block, rows, slice(first, last)
