"""The block kernel: left multiplication by one real matrix, the definition that all kernels are tested against."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.algebras import Factors
from zoo.kernels.assembly import action_of, assemble, differentiable_gradients, gradients, real_matrix
from zoo.kernels.base import BYTES, AxisLayout, Call, Geometry, Kernel, Operand, Part, Prepared, Work, real_cost
from zoo.kernels.matrices import assembled

SMALL = 2**18  # size up to which a matrix is saved for the backward pass


def factored_definition(
    x: Tensor, w: Tensor, factors: Sequence[Tensor], bias: Tensor | None, out: AxisLayout, inp: AxisLayout
) -> Tensor:
    """Multiply rows by the real matrix of a product given by its factors, in differentiable operations."""
    matrix = real_matrix(Factors(*factors).reconstruct(), w, out, inp)
    return F.linear(x, matrix.to(x.dtype), bias)


class Block(Kernel):
    """The real matrix; supports every product."""

    name = "block"

    def can(self, work: Work) -> bool:
        """Return True."""
        return True

    def cost(self, work: Work) -> float:
        """Predict the real layer plus assembling the matrix and its gradient."""
        # On an H100 a launch assembles a matrix of 4096 x 4096 in 21 us, and its gradient in 24 us: the casts that autocast
        # needs for the real weight take 40 us and 57 us.
        if work.prepared or work.device != "cpu":
            return real_cost(work)
        passes = 6 if work.training else 3
        moved = passes * BYTES * work.area * work.inp.channels * work.out.channels
        return real_cost(work) + moved / work.speeds.traffic + 8 * work.speeds.call

    def prepare(self, weight: Operand) -> Tensor:
        """Assemble the real matrix, [out, in, *kernel]."""
        return assembled(weight.part(), weight.components.dtype)

    def bind(self, weight: Operand, prepared: Prepared = None) -> Call | None:
        """Return the product with the cached matrix."""
        return None if prepared is None else lambda x, bias: F.linear(x, prepared, bias)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
        """Multiply or convolve with the real matrix."""
        if geometry is not None:
            matrix = self.prepare(weight) if prepared is None else prepared
            return torch.convolution(x, matrix, bias, *geometry, False, [0] * (x.dim() - 2), 1)
        if prepared is not None:
            return F.linear(x, prepared, bias)
        if x.device.type != "cpu":
            return F.linear(x, self.prepare(weight), bias)
        return block_linear(x, weight.part(), bias)


def block_linear(x: Tensor, part: Part, bias: Tensor | None = None) -> Tensor:
    """Multiply rows by the real matrix of a weight: [..., in] to [..., out].

    Equivalent to ``F.linear(x, real_matrix(...), bias)`` as one autograd node that saves only matrices up to `SMALL`; larger
    ones are reassembled in the backward pass.
    """
    components, table, *product = part
    y: Tensor = _Block.apply(x.reshape(-1, part.inp.channels), components, table, bias, product)
    return y.view(*x.shape[:-1], part.out.channels)


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, table: Tensor | None, bias: Tensor | None, product: list[Any]) -> Tensor:
        matrix = assemble(Part(w, table, *product), w.dtype)
        is_small = matrix.numel() <= SMALL
        ctx.save_for_backward(x, w, table, bias, matrix if is_small else None)
        ctx.product = product
        return F.linear(x, matrix, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients; if they are to be differentiated, by the definition."""
        x, w, table, bias, matrix = ctx.saved_tensors
        part = Part(w, table, *ctx.product)
        need_x, need_w, need_table, need_bias = ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():
            y = F.linear(x, real_matrix(action_of(part), w, part.out, part.inp), bias)
            return *differentiable_gradients(y, (x, w, table, bias), ctx.needs_input_grad[:4], g), None
        gx = gw = g_table = None
        if need_x:
            gx = g @ (assemble(part, w.dtype) if matrix is None else matrix)
        matrix = None  # free its memory before the gradient is allocated
        if need_w or need_table:
            gw, g_table = gradients(part, g.T @ x, need_table)
        return gx, gw if need_w else None, g_table, g.sum(0) if need_bias else None, None
