"""The thin kernel for a few rows, as in decoding: every component of the weight is read once."""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import fused
from zoo.kernels.base import BYTES, CALL, READING, TRAFFIC, AxisLayout, Call, Geometry, Kernel, Operand, Work, product_cost

FEW_COLUMNS = 8
"""Columns up to which the weight is multiplied in its memory order."""


class Thin(Kernel):
    """All products of components as m matrix products, without assembling the real matrix."""

    name = "thin"

    def can(self, work: Work) -> bool:
        """Return whether no gradient is needed."""
        return not work.training and not work.convolution

    def cost(self, work: Work) -> float:
        """Predict reading the components and summing their products."""
        if work.device != "cpu" or work.dtype not in fused.DTYPES or not work.rows:
            return math.inf
        n, rows, i, o = work.inp.n, work.rows, work.inp.elements, work.out.elements
        read = 1.3 * BYTES * work.m * i * o / READING
        if fused.runs(work):
            if work.rank and rows > (fused.FEW_ROWS // 2 if work.prepared else fused.FEW_ROWS):
                return math.inf  # combining the weight is faster
            multiplied = product_cost(rows * n, i, work.m * o, work.threads, unpacked=rows * n)
            return (max(multiplied, read) + 6 * CALL) / 0.8
        # Several columns read a matrix more slowly than one.
        pairs = max(product_cost(rows * n, i, work.m * o, work.threads, unpacked=FEW_COLUMNS), read)
        return (pairs + 3 * BYTES * rows * n * work.m * o / TRAFFIC + 36 * CALL) / 0.8

    def bind(self, weight: Operand, prepared: Any = None) -> Call | None:
        """Return a call of the compiled operator, whose combinations are the components, if it is available.

        y_k is the sum of all products w_i x_j with the coefficients A[i, j, k].
        """
        w, out, inp = weight.components, weight.out, weight.inp
        is_supported = w.device.type == "cpu" and w.dtype in fused.DTYPES and fused.is_worth_compiling(out, inp)
        if not is_supported or not fused.is_available():
            return None
        sums, identity, layouts = weight.action().flatten(0, 1), _identity(inp.n, w.dtype), (tuple(out), tuple(inp))
        multiply = torch.ops.zoo.fused_combined.default
        return lambda x, bias: multiply(x, w, identity, sums, bias, *layouts)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any, geometry: Geometry | None) -> Tensor:
        """Multiply and sum, by the compiled operator if it is available."""
        needs_gradient = torch.is_grad_enabled() and bias is not None and bias.requires_grad
        if not needs_gradient and (call := self.bind(weight)) is not None:
            return call(x, bias)
        return thin_linear(x, weight.components, weight.action(), weight.out, weight.inp, bias)


@cache
def _identity(n: int, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.eye(n, dtype=dtype)


def thin_linear(
    x: Tensor, w: Tensor, structure: Tensor, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    r"""Multiply rows by the weight: [..., in] to [..., out], for w [m, out elements, in elements].

    m matrix products, which read 1 / n of the size of the real matrix, give all m n products w_i x_j, and their sums are the
    components of y, y_k = sum_ij A[i, j, k] w_i x_j. The structure A is [m, n, n].
    """
    (m, n, _), parts = structure.shape, x.reshape(-1, inp.blocks, inp.size)
    count = len(parts)
    if inp.is_padded:
        parts = F.pad(parts, (0, n * inp.width - inp.size))
    if inp.blocks > 1:
        parts = parts.view(count, inp.blocks, n, inp.width).transpose(1, 2)
    columns = parts.reshape(count * n, inp.elements)
    # The order of the two operands changes the time to read the weight by up to a factor of 2.
    if len(columns) <= FEW_COLUMNS:
        pairs = torch.bmm(columns.expand(m, -1, -1), w.mT).view(m, count, n, out.elements).transpose(0, 1)
    else:
        pairs = torch.bmm(w, columns.T.expand(m, -1, -1)).view(m, out.elements, count, n).permute(2, 0, 3, 1)
    by_row = structure.permute(2, 0, 1).reshape(n, m * n)
    y = by_row @ pairs.reshape(count, m * n, out.elements)
    if out.blocks > 1:
        y = y.view(count, n, out.blocks, out.width).transpose(1, 2)
    if out.is_padded:
        y = y.reshape(count, out.blocks, n * out.width)[..., : out.size]
    y = y.reshape(*x.shape[:-1], out.channels)
    return y if bias is None else y + bias
