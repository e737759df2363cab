r"""The factored kernel of a convolution: R block convolutions instead of n^2, as one of R groups, forward and backward.

With A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.kernels.factors`), y_k = sum_r P[r, k] (L_r . w) * (Q_r . x), where * is
torch's convolution. Only x and w are kept for the backward pass.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.kernels.base import AxisLayout
from zoo.kernels.block import real_matrix
from zoo.kernels.factors import Factors


class Geometry(NamedTuple):
    """How a kernel moves over its input, along each axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


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
