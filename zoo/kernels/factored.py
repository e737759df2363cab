r"""The factored kernel: R products of elements instead of n^2, forward and backward, in torch operations.

With factors of the structure tensor, A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.kernels.factors`),

    y_k = sum_r P[r, k] (L_r . w) (Q_r . x)

Neither the real matrix nor its gradient is ever computed, and only x and w are saved for the backward pass.
`zoo.kernels.fused` is a faster, compiled version.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import fused
from zoo.kernels.base import BYTES, CALL, TRAFFIC, AxisLayout, Geometry, Kernel, Operand, Work, product_cost
from zoo.kernels.block import differentiable_gradients, factored_definition
from zoo.kernels.factors import Factors

FEWEST_ROWS = 512
"""Rows below which the kernel runs only on request."""


class Factored(Kernel):
    """R products of elements instead of n^2, by the factors of the structure tensor."""

    name = "factored"

    def can(self, work: Work) -> bool:
        """Return whether there are factors."""
        return work.rank > 0 and not work.convolution

    def cost(self, work: Work) -> float:
        """Predict R products of elements and the memory traffic of the combinations."""
        # The fused operator is faster, and with few rows the overhead of Python dominates.
        if work.device != "cpu" or work.dtype not in fused.DTYPES or work.rows < FEWEST_ROWS or fused.runs(work):
            return math.inf
        rank, n, i, o = work.rank, work.inp.n, work.inp.elements, work.out.elements
        passes = (3 + work.learned) if work.training else 1
        products = passes * rank * product_cost(work.rows, i, o, work.threads)
        moved = BYTES * work.rows * (i + o) * passes * (2 * n + rank)
        weights = (0.0 if work.prepared else 10.0) * passes * BYTES * rank * i * o
        return (products + (moved + weights) / (TRAFFIC * work.threads) + 15 * passes * CALL) / 0.97

    def prepare(self, weight: Operand) -> Tensor:
        """Combine the components to [R, out elements, in elements]."""
        return _combine(weight.factors().left, weight.components)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any, geometry: Geometry | None) -> Tensor:
        """Multiply, by the combinations if they are cached."""
        return factored_linear(x, weight.components, weight.factors(), weight.out, weight.inp, bias, prepared)


def factored_linear(
    x: Tensor, w: Tensor, factors: Factors, out: AxisLayout, inp: AxisLayout, bias: Tensor | None, combined: Any = None
) -> Tensor:
    """Multiply rows by the weight: [..., in] to [..., out], for w [m, out elements, in elements].

    The factors, [R, m], [R, n] and [R, n] in the dtype and on the device of x and w, receive gradients too. Second derivatives
    go through the real matrix. ``combined`` is the cached result of `Factored.prepare`.
    """
    y: Tensor = _Factored.apply(pad_rows(x, inp), w, *factors, out, inp, combined)
    return truncate_rows(y, x.shape[:-1], out, bias)


def pad_rows(x: Tensor, layout: AxisLayout) -> Tensor:
    """Return rows of whole elements: [..., channels] to [rows, blocks * n * width]."""
    rows = x.reshape(-1, layout.channels)
    if layout.is_padded:
        missing = layout.n * layout.width - layout.size
        rows = F.pad(rows.view(len(rows), layout.blocks, layout.size), (0, missing)).flatten(1)
    return rows


def truncate_rows(y: Tensor, axes: Sequence[int], layout: AxisLayout, bias: Tensor | None) -> Tensor:
    """Undo `pad_rows` and add a bias: [rows, blocks * n * width] to [*axes, channels]."""
    if layout.is_padded:
        y = y.view(-1, layout.blocks, layout.n * layout.width)[..., : layout.size]
    y = y.reshape(*axes, layout.channels)
    return y if bias is None else y + bias


class _Factored(torch.autograd.Function):
    """Multiply rows of whole elements, [rows, in blocks * n * width] to [rows, out blocks * n * width]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, left: Tensor, right: Tensor, result: Tensor, *options: Any) -> Tensor:
        out, inp, combined = options
        ctx.save_for_backward(x, w, left, right, result)
        ctx.layouts = out, inp
        matrices = _combine(left, w) if combined is None else combined
        return _scatter(torch.bmm(_gather(right, x, inp), matrices.mT), result, out)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients; if they are to be differentiated, by the definition."""
        x, w, left, right, result = ctx.saved_tensors
        (out, inp), needs = ctx.layouts, ctx.needs_input_grad[:5]
        if torch.is_grad_enabled():
            whole = (layout._replace(channels=layout.n * layout.elements) for layout in (out, inp))
            y = factored_definition(x, w, (left, right, result), None, *whole)
            return *differentiable_gradients(y, ctx.saved_tensors, needs, g), None, None, None
        need_x, need_w, need_left, need_right, need_result = needs
        matrices, g_parts = _combine(left, w), _gather(result, g, out)
        gx = gw = g_left = g_right = g_result = None
        if need_x or need_right:
            gx_parts = torch.bmm(g_parts, matrices)
            gx = _scatter(gx_parts, right, inp) if need_x else None
            g_right = gx_parts.flatten(1) @ _components(x, inp).T if need_right else None
        if need_w or need_left or need_result:
            x_parts = _gather(right, x, inp)
            flat = torch.bmm(g_parts.mT, x_parts).flatten(1) if need_w or need_left else left
            gw = (left.T @ flat).view_as(w) if need_w else None
            g_left = flat @ w.flatten(1).T if need_left else None
            g_result = torch.bmm(x_parts, matrices.mT).flatten(1) @ _components(g, out).T if need_result else None
        return gx, gw, g_left, g_right, g_result, None, None, None


def _combine(left: Tensor, w: Tensor) -> Tensor:
    """Combine the components of the weight to [R, out elements, in elements]."""
    return (left.detach() @ w.detach().flatten(1)).view(-1, *w.shape[1:])


def _gather(factor: Tensor, rows: Tensor, layout: AxisLayout) -> Tensor:
    """Combine the components of rows to [R, rows, elements] by a factor [R, n]."""
    return (factor @ _components(rows, layout)).view(len(factor), -1, layout.elements)


def _scatter(parts: Tensor, factor: Tensor, layout: AxisLayout) -> Tensor:
    """Sum [R, rows, elements] into the components of rows by a factor [R, n]."""
    rows = parts.new_empty(parts.shape[1], layout.n * layout.elements)
    components = _as_components(rows, layout)
    components.copy_((factor.T @ parts.flatten(1)).view(components.shape))
    return rows


def _components(rows: Tensor, layout: AxisLayout) -> Tensor:
    """Return the components of rows, [n, rows * elements]."""
    return _as_components(rows, layout).reshape(layout.n, -1)


def _as_components(rows: Tensor, layout: AxisLayout) -> Tensor:
    """View rows of whole elements as components, [n, rows, blocks, width]."""
    return rows.view(len(rows), layout.blocks, layout.n, layout.width).permute(2, 0, 1, 3)
