r"""The factored convolution: R block convolutions instead of n^2, as one convolution of R groups, forward and backward.

With A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.kernels.factors`), y_k = sum_r P[r, k] (L_r . w) * (Q_r . x), where * is
torch's convolution. Components are combined once per position, for a few images at a time so that the combinations fit in the
cache. Only x and w are saved for the backward pass.
"""

import math
from typing import Any

import torch
from torch import Tensor

from zoo.kernels import fused
from zoo.kernels.base import AxisLayout, Geometry, Kernel, Operand, Work, real_cost
from zoo.kernels.block import differentiable_gradients, real_matrix
from zoo.kernels.factors import Factors

GROUP_UNIT = 16
"""Torch's convolution is fast if the channels of a group are a multiple of this."""
MIXING = 170
"""Time to combine the components of an input channel, in multiplications of the real convolution."""
CHUNK_BYTES = 2**21
"""Bytes of the combinations of a chunk of images, which should fit in the cache."""


class FactoredConv(Kernel):
    """R convolutions of elements instead of n^2, for fixed products and channels that are a multiple of n."""

    name = "factored"

    def can(self, work: Work) -> bool:
        """Return whether there are fixed factors and whole elements."""
        whole = all(layout.blocks == 1 and not layout.is_padded for layout in (work.inp, work.out))
        return work.convolution and work.rank > 0 and whole and not work.learned

    def cost(self, work: Work) -> float:
        """Predict R / n^2 of the real convolution plus combining the components.

        Measurements show no gain for 1 x 1 kernels and for R > n^2 / 2 (complex numbers).
        """
        i, o = work.inp.elements, work.out.elements
        gains = work.area > 1 and not i % GROUP_UNIT and not o % GROUP_UNIT and work.device == "cpu"
        gains = gains and 2 * work.rank <= work.inp.n**2
        if not gains or work.dtype not in fused.DTYPES or not work.rows or not fused.is_available():
            return math.inf
        mixing = MIXING * work.inputs / (work.rows * work.area * o)
        return real_cost(work) * (work.rank / work.inp.n**2 + mixing)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any, geometry: Geometry | None) -> Tensor:
        """Convolve as one convolution of R groups."""
        assert geometry is not None
        return factored_conv(x, weight.components, weight.factors(), geometry, bias)


def factored_conv(x: Tensor, w: Tensor, factors: Factors, geometry: Geometry, bias: Tensor | None = None) -> Tensor:
    """Convolve [N, n i, *space] with w [m, o, i, *kernel] to [N, n o, *space]; the factors receive no gradient.

    Second derivatives go through the real matrix.
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
        kernels, images = _kernels(left, w), _images(x, w, right)
        y, start = None, 0
        for chunk in x.split(images):
            part = torch.convolution(_combine(chunk, right), kernels, None, *geometry, False, [0] * (x.dim() - 2), len(left))
            if y is None:
                y = _empty(x, len(x), result.shape[1] * w.shape[1], *part.shape[2:])
            fused.mix(part, result.T, y[start : (start := start + len(part))])
        assert y is not None
        return y if bias is None else y.add_(bias.view(-1, *(1,) * (x.dim() - 2)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients; if they are to be differentiated, by the definition."""
        x, w, left, right, result = ctx.saved_tensors
        (need_x, need_w, need_bias), axes = ctx.needs_input_grad[:3], x.dim() - 2
        gb = g.sum((0, *range(2, g.dim()))) if need_bias else None
        if torch.is_grad_enabled():
            n = right.shape[1]
            layouts = AxisLayout(n * w.shape[1], n), AxisLayout(n * w.shape[2], n)
            matrix = real_matrix(Factors(left, right, result).reconstruct(), w, *layouts)
            geometry: Geometry = ctx.geometry
            y = torch.convolution(x, matrix, None, *geometry, False, [0] * axes, 1)
            return *differentiable_gradients(y, (x, w), (need_x, need_w), g), gb, *(None,) * 4
        kernels, images = _kernels(left, w), _images(x, w, right)
        gx, g_kernels = _empty(x, *x.shape) if need_x else None, torch.zeros_like(kernels)
        for start in range(0, len(x), images):
            chunk = slice(start, start + images)
            inputs = _combine(g[chunk], result), _combine(x[chunk], right), kernels
            options = *ctx.geometry, False, [0] * axes, len(left), [need_x, need_w, False]
            g_part, g_kernel, _ = torch.ops.aten.convolution_backward(*inputs, None, *options)
            if gx is not None:
                fused.mix(g_part, right.T, gx[chunk])
            if need_w:
                g_kernels += g_kernel
        gw = (left.T @ g_kernels.view(len(left), -1)).view_as(w) if need_w else None
        return gx, gw, gb, *(None,) * 4


def _images(x: Tensor, w: Tensor, factor: Tensor) -> int:
    """Return the number of images of a chunk; large kernels, which torch repacks at every call, take more images."""
    ranks, n = factor.shape
    size = max(CHUNK_BYTES, ranks * w[0].numel() * w.element_size())
    return max(1, size // max(1, ranks * x[:1].numel() // n * x.element_size()))


def _empty(like: Tensor, *shape: int) -> Tensor:
    """Return an uninitialised tensor, channels last in memory if ``like`` is."""
    if like.is_contiguous() or like.stride(1) != 1:
        return like.new_empty(shape)
    return like.new_empty(shape[0], *shape[2:], shape[1]).movedim(-1, 1)


def _combine(x: Tensor, factor: Tensor) -> Tensor:
    """Combine components to [N, R c, *space], channels last in memory, which torch convolves fastest."""
    y = x.new_empty(len(x), *x.shape[2:], len(factor) * x.shape[1] // factor.shape[1]).movedim(-1, 1)
    fused.mix(x, factor, y)
    return y


def _kernels(left: Tensor, w: Tensor) -> Tensor:
    """Combine the components of the weight to [R o, i, *kernel], the kernels of R groups."""
    return (left @ w.reshape(len(w), -1)).view(len(left) * w.shape[1], *w.shape[2:])
