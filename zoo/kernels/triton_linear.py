r"""The factored product on a GPU: one launch of a Triton kernel for the output and for each gradient.

With factors of the structure tensor, A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.kernels.factors`), the output and the
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
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.errors import InputError
from zoo.kernels.base import AxisLayout, Geometry, Kernel, Operand, Work, factors_required
from zoo.kernels.block import differentiable_gradients, real_matrix
from zoo.kernels.factors import Factors

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_TERMS = 8
"""Terms up to which the kernel keeps all sums in registers and reads its input once."""
PROGRAMS = 264
"""Programs that should share the rows of a weight gradient: two for each multiprocessor of a large GPU."""
FEWEST_ROWS = 512
"""Minimum number of rows that a program of a weight gradient sums over."""

Table = tuple[tuple[float, ...], ...]
Terms = tuple[tuple[tuple[int, float], ...], ...]
Axis = tuple[int, int, int, int]


class Constants(NamedTuple):
    """Factors as nested tuples of numbers, [R][m or n], which are compiled into the kernel."""

    left: Table
    right: Table
    result: Table


class Strided(NamedTuple):
    """A tensor with the number and stride of its components and two axes, see `zoo.kernels.triton_product.bilinear`."""

    tensor: Tensor
    components: int
    stride: int
    first: Axis
    second: Axis

    def transposed(self) -> "Strided":
        """Swap the axes."""
        return self._replace(first=self.second, second=self.first)


class TileSizes(NamedTuple):
    """The tile of a program: rows, columns, depth, terms that are summed at a time, and warps."""

    p: int
    q: int
    s: int
    group: int
    warps: int


class Triton(Kernel):
    """The factored product in one kernel for GPUs; it has never run on a GPU, so it is used only on request."""

    name = "triton"
    casts = True

    def can(self, work: Work) -> bool:
        """Return whether there are fixed factors, a CUDA device (or Triton's interpreter) and a dtype of `DTYPES`."""
        fixed = work.rank is not None and not work.learned and not work.convolution
        return fixed and can_compute(torch.device(work.device), work.dtype)

    def cost(self, work: Work) -> float:
        """Return infinity."""
        return math.inf

    def missing(self) -> str | None:
        """Return why the kernel cannot run on this machine, or None."""
        return missing()

    def apply(
        self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any = None, geometry: Geometry | None = None
    ) -> Tensor:
        """Multiply, with the factors compiled into the kernel."""
        return triton_linear(x, weight.components, constants(factors_required(weight)), weight.out, weight.inp, bias)


def constants(factors: Factors) -> Constants:
    """Convert factors to nested tuples, without terms that are zero."""
    needed = torch.stack([f.detach().abs().sum(1) > 0 for f in factors]).all(0)
    return Constants(*(tuple(map(tuple, f.detach()[needed].double().tolist())) for f in factors))


def is_interpreted() -> bool:
    """Return whether Triton's interpreter runs the kernels, on any device, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def missing() -> str | None:
    """Return why the kernel cannot run on this machine, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not (torch.cuda.is_available() or is_interpreted()):
        return "torch sees no CUDA device"
    return None


def can_compute(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the kernel supports tensors of a device and dtype."""
    return dtype in DTYPES and (device.type == "cuda" or is_interpreted()) and missing() is None


def triton_linear(
    x: Tensor, w: Tensor, factors: Constants, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    """Multiply rows by the weight: [..., in] to [..., out], for w [m, out elements, in elements].

    x, w and the bias receive gradients; second derivatives go through the real matrix.

    Raises:
        InputError: If the dtype or device is not supported, or Triton is not installed.
    """
    if not can_compute(x.device, x.dtype):
        raise InputError(f"the kernel 'triton' cannot multiply {x.dtype} on {x.device.type}: {missing() or 'use block'}")
    y: Tensor = _Triton.apply(x.reshape(-1, inp.channels), w, bias, factors, out, inp)
    return y.view(*x.shape[:-1], out.channels)


class _Triton(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, factors: Constants, out: AxisLayout, inp: AxisLayout
    ) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.product = factors, out, inp
        left, right, result = factors
        y = x.new_empty(len(x), out.channels)
        sizes = len(x), out.elements, inp.elements
        bias = None if bias is None else bias.contiguous()
        _launch(_rows(x, inp), _weight(w).transposed(), _rows(y, out), sizes, right, left, result, bias)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients; if they are to be differentiated, by the definition."""
        (x, w), (factors, out, inp) = ctx.saved_tensors, ctx.product
        need_x, need_w, need_bias = ctx.needs_input_grad[:3]
        gb = g.sum(0) if need_bias else None
        if torch.is_grad_enabled():
            structure = Factors(*(torch.tensor(f, dtype=w.dtype, device=w.device) for f in factors)).reconstruct()
            y = F.linear(x, real_matrix(structure, w, out, inp))
            return *differentiable_gradients(y, (x, w), (need_x, need_w), g), gb, None, None, None
        left, right, result = factors
        gx = gw = None
        rows = _rows(g, out)
        if need_x:
            gx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            _launch(rows, _weight(w), _rows(gx, inp), (len(x), inp.elements, out.elements), result, left, right)
        if need_w:
            gw = _weight_gradient(rows, _rows(x, inp), w, factors)
        return gx, gw, gb, None, None, None


def _weight_gradient(g: Strided, x: Strided, w: Tensor, factors: Constants) -> Tensor:
    """Sum over the rows, split into shares if there are many rows and few tiles; the shares are added in a fixed order."""
    left, right, result = factors
    (m, o, i), rows = w.shape, len(x.tensor)
    tile = _tile(m, len(left), w.dtype)
    tiles = -(-o // tile.p) * -(-i // tile.q)
    shares = max(1, min(-(-PROGRAMS // tiles), rows // FEWEST_ROWS))
    parts = w.new_empty(shares, m, o, i, dtype=torch.float32 if shares > 1 else w.dtype)
    _launch(g.transposed(), x, _weight(parts[0]), (o, i, rows), result, right, left, shares=shares)
    return parts.sum(0).to(w.dtype) if shares > 1 else parts[0]


def _launch(
    a: Strided,
    b: Strided,
    out: Strided,
    sizes: tuple[int, int, int],
    factor_a: Table,
    factor_b: Table,
    factor_out: Table,
    bias: Tensor | None = None,
    shares: int = 1,
) -> None:
    """Run the kernel on sizes (p, q, s)."""
    from zoo.kernels.triton_product import bilinear

    p, q, s = sizes
    if not p:
        return
    tile = _tile(out.components, len(factor_a), a.tensor.dtype)
    precise = not a.tensor.is_cuda or torch.get_float32_matmul_precision() == "highest"
    bilinear[-(-p // tile.p), -(-q // tile.q), shares](
        a.tensor,
        b.tensor,
        out.tensor,
        bias,
        sizes,
        (-(-s // (shares * tile.s)), out.components * p * q),
        (a.stride, a.first, a.second),
        (b.stride, b.first, b.second),
        (out.stride, out.first, out.second),
        LEFT=_terms(factor_a),
        RIGHT=_terms(factor_b),
        RESULT=tuple(zip(*factor_out, strict=True)),
        COMPONENTS=(a.components, b.components),
        BLOCKS=(tile.p, tile.q, tile.s),
        GROUP=tile.group,
        HAS_BIAS=bias is not None,
        PRECISION="ieee" if precise else "tf32",
        WIDEN=is_interpreted(),
        num_warps=tile.warps,
        enable_fp_fusion=True,
    )


def _tile(components: int, terms: int, dtype: torch.dtype) -> TileSizes:
    """Return a tile whose sums, of all components and of a group of terms, roughly fit in the registers of its warps."""
    depth = 16 if dtype == torch.float32 else 32
    if terms <= MOST_TERMS:
        return TileSizes(64, 32, depth, terms, 4) if dtype == torch.float32 else TileSizes(64, 64, depth, terms, 8)
    return TileSizes(64, 32, depth, 4, 8) if components <= 8 else TileSizes(32, 16, depth, 4, 8)


@cache
def _terms(table: Table) -> Terms:
    """Return the nonzero entries of every row with their indices."""
    return tuple(tuple((j, value) for j, value in enumerate(row) if value) for row in table)


def _rows(rows: Tensor, layout: AxisLayout) -> Strided:
    """Describe rows of features, [rows, channels], whose last elements may be truncated."""
    outer, inner = rows.stride()
    is_plain = layout.blocks == 1 and layout.size == layout.n * layout.width
    features = (1, 0, inner, layout.n) if is_plain else (layout.width, inner, layout.size * inner, layout.size)
    return Strided(rows, layout.n, layout.width * inner, (1, 0, outer, layout.n), features)


def _weight(w: Tensor) -> Strided:
    """Describe components [m, out elements, in elements]."""
    component, outer, inner = w.stride()
    return Strided(w, len(w), component, (1, 0, outer, len(w)), (1, 0, inner, len(w)))
