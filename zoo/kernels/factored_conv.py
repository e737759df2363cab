r"""The factored kernel of a convolution: R block convolutions instead of n^2, as one of R groups, forward and backward.

With A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.kernels.factors`), y_k = sum_r P[r, k] (L_r . w) * (Q_r . x), where * is
torch's convolution. Only x and w are kept for the backward pass.
"""

import math
from typing import Any

import torch
from torch import Tensor

from zoo.kernels.base import BYTES, CALL, TRAFFIC, AxisLayout, Geometry, Kernel, Operand, Work, product
from zoo.kernels.block import real_matrix
from zoo.kernels.factored import PLANNED
from zoo.kernels.factors import Factors


class FactoredConv(Kernel):
    """R convolutions of elements in place of n^2, without padding inside of elements and without a learned product."""

    name = "factored"

    def can(self, work: Work) -> bool:
        """Return whether there are fixed factors, and whole elements."""
        whole = work.inp.is_whole and work.out.is_whole
        return work.convolution and work.rank is not None and whole and not work.learned

    def cost(self, work: Work) -> float:
        """Predict combining the components of input, weight and output, and R convolutions."""
        if work.device != "cpu" or work.dtype not in PLANNED or not work.rows:
            return math.inf
        rank, passes = work.rank or 0, 3 if work.training else 1
        i, o = work.inp.elements, work.out.elements
        # Torch copies the components into another order: the traffic is that many times as much.
        copies = passes * (4.5 if work.training else 3.0)
        moved = copies * BYTES * (work.inputs * i + work.rows * o) * (work.inp.n + 2 * rank)
        weights = (6 if work.training else 2) * rank * BYTES * work.area * i * o
        multiplied = passes * rank * product(work.rows, i, o, work.threads) * work.area
        calls = (20 if work.training else 12) * CALL
        return (calls + multiplied + moved / (TRAFFIC * work.threads) + weights / TRAFFIC) / 0.9

    def apply(
        self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any = None, geometry: Geometry | None = None
    ) -> Tensor:
        """Convolve as one convolution of R groups."""
        factors = weight.factors()
        assert factors is not None
        assert geometry is not None
        return factored_conv(x, weight.components, factors, geometry, bias)


def factored_conv(x: Tensor, w: Tensor, factors: Factors, geometry: Geometry, bias: Tensor | None = None) -> Tensor:
    """Convolve [N, n i, *space] with w [m, o, i, *kernel] to [N, n o, *space]; the factors get no gradient.

    A gradient of a gradient goes through the real matrix.
    """
    y: Tensor = _FactoredConv.apply(x, w, bias, *factors, geometry)
    return y


class _FactoredConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, left: Tensor, right: Tensor, result: Tensor, geometry: Geometry
    ) -> Tensor:
        ctx.save_for_backward(x, w, left, right, result)
        ctx.geometry = geometry
        parts = _convolve(_combined(right, x), _kernels(left, w), geometry, len(left))
        # Not a view: autograd refuses in-place operations, such as a ReLU, on views that custom functions return.
        y = parts.new_empty(len(x), result.shape[1] * w.shape[1], *parts.shape[2:])
        torch.matmul(result.T, parts.view(len(x), len(left), -1), out=y.view(len(x), result.shape[1], -1))
        return y if bias is None else y.add_(bias.view(-1, *(1,) * (x.dim() - 2)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients; a graph of them is only built by way of the definition."""
        x, w, left, right, result = ctx.saved_tensors
        of_x, of_w, of_bias = ctx.needs_input_grad[:3]
        gb = g.sum((0, *range(2, g.dim()))) if of_bias else None
        if torch.is_grad_enabled():
            gx, gw = _by_definition(ctx, g)
            return gx, gw, gb, *(None,) * 4
        axes, ranks = x.dim() - 2, len(left)
        gx, gw, _ = torch.ops.aten.convolution_backward(
            _combined(result, g.contiguous()),
            _combined(right, x),
            _kernels(left, w),
            None,
            *ctx.geometry,
            False,
            [0] * axes,
            ranks,
            [of_x, of_w, False],
        )
        gx = _combined(right.T, gx) if of_x else None
        gw = (left.T @ gw.view(ranks, -1)).view_as(w) if of_w else None
        return gx, gw, gb, *(None,) * 4


def _combined(factor: Tensor, x: Tensor) -> Tensor:
    """Combine the components of every channel: a factor [R, n], and [N, n c, *space] to [N, R c, *space]."""
    count, channels, *space = x.shape
    parts = torch.matmul(factor, x.view(count, factor.shape[1], -1))
    return parts.view(count, len(factor) * channels // factor.shape[1], *space)


def _kernels(left: Tensor, w: Tensor) -> Tensor:
    """Combine the components of the weight to the kernels of R groups, [R o, i, *kernel]."""
    return (left @ w.reshape(len(w), -1)).view(len(left) * w.shape[1], *w.shape[2:])


def _convolve(x: Tensor, kernels: Tensor, geometry: Geometry, groups: int) -> Tensor:
    return torch.convolution(x, kernels, None, *geometry, False, [0] * (x.dim() - 2), groups)


def _by_definition(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of x and w as functions that can be differentiated again, through the real matrix."""
    x, w, *factors = ctx.saved_tensors
    n = factors[1].shape[1]
    layouts = AxisLayout(n * w.shape[1], n), AxisLayout(n * w.shape[2], n)
    y = _convolve(x, real_matrix(torch.einsum("ri,rj,rk->ijk", *factors), w, *layouts), ctx.geometry, 1)
    needs = ctx.needs_input_grad[:2]
    wanted = [tensor for tensor, needed in zip((x, w), needs, strict=True) if needed]
    found = iter(torch.autograd.grad(y, wanted, g, create_graph=True) if wanted else ())
    gx, gw = (next(found) if needed else None for needed in needs)
    return gx, gw
