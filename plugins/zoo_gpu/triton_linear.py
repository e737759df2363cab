r"""The factored product on a GPU: one launch of a Triton kernel for the output and for each gradient.

With factors of the structure tensor, A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.algebras.properties`), the output and the
gradients of the input and of the weight are

    y_k  = sum_r P[r, k] (Q_r . x) (L_r . w)^T
    gx_j = sum_r Q[r, j] (P_r . g) (L_r . w)
    gw_i = sum_r L[r, i] (P_r . g)^T (Q_r . x)

for rows x and g. Combinations are computed in registers and rounded to the dtype of x; products are accumulated in float32.
Neither the real matrix nor its gradient nor a combination is ever stored, and only x and w are saved for the backward pass.
"""

import math
import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from zoo.algebras import Factors
from zoo.kernels import AxisLayout, Geometry, Kernel, Operand, Work
from zoo.kernels.block import differentiable_gradients, factored_definition
from zoo.kernels.factored import pad_rows, truncate_rows

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TILE, DEPTH = 32, 32  # rows and columns of the tile of a program, and the terms of a dot product that it reads at a time

Table = tuple[tuple[float, ...], ...]


class Triton(Kernel):
    """The factored product in one kernel for GPUs; it has never run on a GPU, so it is used only on request."""

    name = "triton"
    casts = True

    def can(self, work: Work) -> bool:
        """Return whether there are fixed factors, a CUDA device (or Triton's interpreter) and a dtype of `DTYPES`."""
        is_fixed = work.rank > 0 and not work.learned and not work.convolution
        has_device = work.device == "cuda" or is_interpreted()
        return is_fixed and has_device and work.dtype in DTYPES and missing() is None

    def cost(self, work: Work) -> float:
        """Return infinity."""
        return math.inf

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return missing()

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any, geometry: Geometry | None) -> Tensor:
        """Multiply, with the factors compiled into the kernel."""
        return triton_linear(x, weight.components, weight.factors(), weight.out, weight.inp, bias)


def is_interpreted() -> bool:
    """Return whether Triton's interpreter runs the kernel, on any device, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def missing() -> str | None:
    """Return why the kernel cannot run on this machine, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    return None if torch.cuda.is_available() or is_interpreted() else "torch sees no CUDA device"


def triton_linear(
    x: Tensor, w: Tensor, factors: Factors, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    """Multiply rows by the weight: [..., in] to [..., out]; the factors [R, m or n] receive no gradient."""
    tables = tuple(tuple(map(tuple, factor.detach().double().tolist())) for factor in factors)
    y: Tensor = _Triton.apply(pad_rows(x, inp), w, tables, out, inp)
    return truncate_rows(y, x.shape[:-1], out, bias)


class _Triton(torch.autograd.Function):
    """Multiply rows of whole elements, [rows, in blocks * n * width] to [rows, out blocks * n * width]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, tables: tuple[Table, Table, Table], out: AxisLayout, inp: AxisLayout) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.product = tables, out, inp
        (left, right, result), y = tables, x.new_empty(len(x), out.n, out.elements)
        _launch(_components(x, inp), w.mT, y.transpose(0, 1), right, left, result)
        return _rows(y, out)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients; if they are to be differentiated, by the definition."""
        (x, w), (tables, out, inp), needs = ctx.saved_tensors, ctx.product, ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():
            factors = [torch.tensor(table, dtype=w.dtype, device=w.device) for table in tables]
            whole = (layout._replace(channels=layout.n * layout.elements) for layout in (out, inp))
            y = factored_definition(x, w, factors, None, *whole)
            return *differentiable_gradients(y, (x, w), needs, g), None, None, None
        (left, right, result), parts, gx, gw = tables, _components(g, out), None, None
        if needs[0]:
            gx = x.new_empty(len(x), inp.n, inp.elements)
            _launch(parts, w, gx.transpose(0, 1), result, left, right)
            gx = _rows(gx, inp)
        if needs[1]:
            gw = w.new_empty(w.shape)
            _launch(parts.mT, _components(x, inp), gw, result, right, left)
        return gx, gw, None, None, None


def _launch(a: Tensor, b: Tensor, out: Tensor, factor_a: Table, factor_b: Table, factor_out: Table) -> None:
    """Run the kernel, see `zoo_gpu.bilinear`."""
    from zoo_gpu.bilinear import bilinear

    (_, p, s), q = a.shape, b.shape[2]
    if not p:
        return
    precise = not a.is_cuda or torch.get_float32_matmul_precision() == "highest"
    bilinear[-(-p // TILE), -(-q // TILE)](
        *(a, b, out),
        (p, q, s),
        *(tensor.stride() for tensor in (a, b, out)),
        *(tuple(value for row in table for value in row) for table in (factor_a, factor_b, factor_out)),
        *(len(a), len(b), len(out), len(factor_a)),
        TILE=TILE,
        DEPTH=DEPTH,
        PRECISION="ieee" if precise else "tf32",
        WIDEN=is_interpreted(),
        enable_fp_fusion=True,
    )


def _components(rows: Tensor, layout: AxisLayout) -> Tensor:
    """Return the components of rows of whole elements, [n, rows, elements]; a view for one block."""
    return rows.reshape(len(rows), layout.blocks, layout.n, layout.width).permute(2, 0, 1, 3).flatten(2)


def _rows(parts: Tensor, layout: AxisLayout) -> Tensor:
    """Return rows of whole elements from [rows, n, elements]; a view for one block."""
    return parts.view(-1, layout.n, layout.blocks, layout.width).transpose(1, 2).reshape(len(parts), layout.n * layout.elements)
