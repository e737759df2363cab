"""The fused kernel: the factored product as one CPU operator, compiled from ``fused.cpp`` (see `zoo.kernels.compiled`).

The operators of ``torch.ops.zoo`` have fake implementations, gradients and batching rules. Second derivatives are computed by
the definition.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from zoo.kernels.base import BYTES, CALL, TRAFFIC, AxisLayout, Geometry, Kernel, Operand, Work, factors_required, product_cost
from zoo.kernels.block import real_matrix
from zoo.kernels.compiled import is_available as is_available
from zoo.kernels.compiled import status
from zoo.kernels.factors import Factors
from zoo.kernels.internals import autocast_dtype, is_plain_mode

Layout = Sequence[int]
DTYPES = (torch.float32, torch.float64)
HALF_SPEED = 4
"""Speed of products in bfloat16 relative to float32; combining is not faster."""
FEWEST_ELEMENTS = 32 * 32
"""Elements of a weight below which the operator is not used."""
FEW_ROWS = 8
"""Rows up to which the thin product is faster than combining the weight; half as many if the combinations are cached."""

_registry: Any = torch.library
_LIBRARY = _registry.Library("zoo", "FRAGMENT")
_LAYOUTS = "int[3] out, int[3] inp"
for _schema in (
    f"fused_linear(Tensor x, Tensor w, Tensor left, Tensor right, Tensor result, Tensor? bias, {_LAYOUTS}) -> Tensor",
    f"fused_backward(Tensor g, Tensor x, Tensor w, Tensor left, Tensor right, Tensor result, {_LAYOUTS}, bool[6] needs)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    f"fused_combined(Tensor x, Tensor matrices, Tensor right, Tensor result, Tensor? bias, {_LAYOUTS}) -> Tensor",
    "fused_combinations(Tensor x, Tensor w, Tensor left) -> Tensor",
):
    _LIBRARY.define(_schema, tags=torch.Tag.pt2_compliant_tag)
_LIBRARY.define(f"fused_rows(Tensor x, Tensor w, Tensor left, Tensor right, Tensor result, Tensor? bias, {_LAYOUTS}) -> Tensor")
_LIBRARY.define("fused_mix(Tensor x, Tensor coefficients, Tensor(a!) y) -> ()")


def runs(work: Work) -> bool:
    """Return whether the operator supports a product."""
    is_supported = not work.convolution and work.device == "cpu" and work.dtype in (*DTYPES, torch.bfloat16)
    return is_supported and is_worth_compiling(work.out, work.inp) and is_available()


def mix(x: Tensor, coefficients: Tensor, y: Tensor) -> None:
    """Combine the components of x, [N, n c, *space], by coefficients [R, n] into y, [N, R c, *space]; without gradients."""
    if x.device.type == "cpu" and x.dtype in DTYPES and is_available():
        torch.ops.zoo.fused_mix(x.flatten(2), coefficients, y.flatten(2))
    else:
        n = coefficients.shape[1]
        components = x.reshape(len(x), n, x.shape[1] // n * math.prod(x.shape[2:]))
        y.copy_(torch.matmul(coefficients, components).view(y.shape))


def is_worth_compiling(out: AxisLayout, inp: AxisLayout) -> bool:
    """Return whether a weight has enough elements to compile the operator for it."""
    return out.elements * inp.elements >= FEWEST_ELEMENTS


class Fused(Kernel):
    """The factored product of rows as one operator."""

    name = "fused"
    casts = True

    def can(self, work: Work) -> bool:
        """Return whether there are factors and the operator supports the product.

        The number of rows is irrelevant: rounding must not depend on the batch size.
        """
        return work.rank is not None and runs(work)

    def cost(self, work: Work) -> float:
        """Predict combining the weight, and products of elements with all components in the cache."""
        rank, i, o = work.rank or 0, work.inp.elements, work.out.elements
        passes = (3 + work.learned) if work.training else 1
        packing = (1 + 16 / i) * (1 + 16 / o)  # the share of copying in narrow products
        products = passes * rank * packing * product_cost(work.rows, i, o, work.threads)
        moved = BYTES * passes * work.rows * (i + o) * (work.inp.n + rank) / (4 * TRAFFIC * work.threads)
        weights = 0.0 if work.prepared else passes * BYTES * (work.m + rank) * i * o / TRAFFIC
        # All kernels predict float32 times; in bfloat16 only products are faster, so everything else weighs more.
        speed = HALF_SPEED if work.dtype == torch.bfloat16 else 1
        return products + speed * (moved + weights + (10 if work.training else 5) * CALL)

    def prepare(self, weight: Operand) -> Tensor:
        """Combine the components to [R, out elements, in elements]."""
        return combinations(weight.components, factors_required(weight).left, weight.components)

    def missing(self) -> str | None:
        """Return why the operator cannot run, or None."""
        return None if is_available() else status()

    def bind(self, weight: Operand, prepared: Any = None) -> Callable[[Tensor, Tensor | None], Tensor] | None:
        """Return a call of the operator without autograd, which takes a third of the time for one row."""
        left, right, result = factors_required(weight)
        w, out, inp = weight.components, tuple(weight.out), tuple(weight.inp)
        if prepared is not None:
            combined = torch.ops.zoo.fused_combined.default
            return lambda x, bias: combined(x, prepared, right, result, bias, out, inp)
        rows = torch.ops.zoo.fused_rows.default
        return lambda x, bias: rows(x, w, left, right, result, bias, out, inp)

    def apply(
        self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any = None, geometry: Geometry | None = None
    ) -> Tensor:
        """Multiply, by the combinations if they are cached."""
        factors = factors_required(weight)
        needs_gradient = torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
        if prepared is None or needs_gradient:
            return fused_linear(x, weight.components, factors, weight.out, weight.inp, bias)
        return fused_combined(x, prepared, factors, weight.out, weight.inp, bias)


def fused_linear(
    x: Tensor, w: Tensor, factors: Factors, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    """Multiply rows by the weight: [..., in] to [..., out], for w [m, out elements, in elements] and factors [R, m or n].

    x, w, the bias and the factors receive gradients. Autocast applies to the rows, the bias and the combined weight.
    Transformations of `torch.func` and forward-mode derivatives use the definition.
    """
    x, bias = _autocast(x, bias)
    if not is_plain_mode():
        return _definition(x, w, *factors, bias, out, inp)
    y: Tensor = torch.ops.zoo.fused_linear(x, w, *factors, bias, out, inp)
    return y


@cache
def _identity(n: int, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.eye(n, dtype=dtype)


def fused_thin_linear(
    x: Tensor, w: Tensor, structure: Tensor, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    """Multiply a few rows by the weight, reading each component once; structure is [m, n, n], without gradients.

    y_k is the sum of all products w_i x_j with the coefficients A[i, j, k].
    """
    x, bias = _autocast(x, bias)
    identity = _identity(inp.n, structure.dtype)
    y: Tensor = torch.ops.zoo.fused_combined.default(x, w.to(x.dtype), identity, structure.flatten(0, 1), bias, out, inp)
    return y


def bind_thin(weight: Operand) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Return a fast ``(x, bias) -> y`` of `fused_thin_linear` for a weight."""
    w, sums, identity = weight.components, weight.action().flatten(0, 1), _identity(weight.inp.n, weight.components.dtype)
    out, inp, combined = tuple(weight.out), tuple(weight.inp), torch.ops.zoo.fused_combined.default
    return lambda x, bias: combined(x, w, identity, sums, bias, out, inp)


def combinations(w: Tensor, left: Tensor, like: Tensor) -> Tensor:
    """Combine the components of a weight to [R, out elements, in elements] in the dtype of the rows; without gradients."""
    matrices: Tensor = torch.ops.zoo.fused_combinations(_autocast(like, None)[0], w, left)
    return matrices


def fused_combined(
    x: Tensor, matrices: Tensor, factors: Factors, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    """Multiply rows by precomputed `combinations`, [R, out elements, in elements]; without gradients."""
    x, bias = _autocast(x, bias)
    y: Tensor = torch.ops.zoo.fused_combined(x, matrices, factors.right, factors.result, bias, out, inp)
    return y


def _autocast(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Cast rows and bias to the dtype of autocast, if it is enabled."""
    dtype = autocast_dtype(x.device)
    if dtype is None or x.dtype == torch.float64:
        return x, bias
    return x.to(dtype), None if bias is None else bias.to(dtype)


def _definition(
    x: Tensor, w: Tensor, left: Tensor, right: Tensor, result: Tensor, bias: Tensor | None, out: Layout, inp: Layout
) -> Tensor:
    """Compute the product with the real matrix, in differentiable operations."""
    matrix = real_matrix(torch.einsum("ri,rj,rk->ijk", left, right, result), w, AxisLayout(*out), AxisLayout(*inp))
    return F.linear(x, matrix.to(x.dtype), bias)


def _fake_rows(x: Tensor, *inputs: Any) -> Tensor:
    out: Layout = inputs[-2]
    return x.new_empty((*x.shape[:-1], out[0]))


def _fake_backward(
    g: Tensor, x: Tensor, w: Tensor, left: Tensor, right: Tensor, result: Tensor, out: Any, inp: Any, needs: Any
) -> Any:
    bias = g.new_empty(out[0] if needs[5] else 0, dtype=torch.promote_types(g.dtype, torch.float32))
    pairs = zip((x, w, left, right, result), needs, strict=False)
    return *(t.new_empty(t.shape if need else 0) for t, need in pairs), bias


def _setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    *tensors, bias, ctx.out, ctx.inp = inputs
    ctx.save_for_backward(*tensors)
    ctx.bias_dtype = None if bias is None else bias.dtype


def _backward(ctx: Any, g: Tensor) -> Any:
    tensors, needs = ctx.saved_tensors, list(ctx.needs_input_grad[:6])
    backward = _differentiable_gradients if torch.is_grad_enabled() else torch.ops.zoo.fused_backward
    gradients = backward(g, *tensors, ctx.out, ctx.inp, needs)
    *grads, bias = (gradient if need else None for gradient, need in zip(gradients, needs, strict=True))
    return *grads, None if bias is None else bias.to(ctx.bias_dtype), None, None


def _differentiable_gradients(g: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    """Return differentiable gradients, through the real matrix."""
    *tensors, out, inp, _ = inputs
    vjp: Any = torch.func.vjp(lambda x, w, u, v, p: _definition(x, w, u, v, p, None, out, inp), *tensors)[1]
    return *vjp(g), g.flatten(0, -2).sum(0)


def _batched_linear(info: Any, in_dims: Any, x: Tensor, *inputs: Any) -> tuple[Tensor, int]:
    if all(dim is None for dim in in_dims[1:6]):  # rows may have any number of axes
        return torch.ops.zoo.fused_linear(x.movedim(in_dims[0], 0), *inputs), 0
    return torch.stack(_loop(torch.ops.zoo.fused_linear, info.batch_size, in_dims, (x, *inputs))), 0


def _batched_backward(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    batch = _loop(torch.ops.zoo.fused_backward, info.batch_size, in_dims, inputs)
    return tuple(map(torch.stack, zip(*batch, strict=True))), (0,) * 6


def _loop(operator: Any, size: int, in_dims: Any, inputs: Any) -> list[Any]:
    """Call an operator for every element of a batch."""
    dims = [dim if isinstance(dim, int) else None for dim in in_dims]  # in_dims of a layout is a list
    return [
        operator(*(t if dim is None else t.select(dim, k) for t, dim in zip(inputs, dims, strict=True))) for k in range(size)
    ]


_registry.register_fake("zoo::fused_linear", _fake_rows, lib=_LIBRARY)
_registry.register_fake("zoo::fused_combined", _fake_rows, lib=_LIBRARY)
_registry.register_fake("zoo::fused_combinations", lambda x, w, left: x.new_empty((len(left), *w.shape[1:])), lib=_LIBRARY)
_registry.register_fake("zoo::fused_backward", _fake_backward, lib=_LIBRARY)
_registry.register_vmap("zoo::fused_linear", _batched_linear, lib=_LIBRARY)
_registry.register_vmap("zoo::fused_backward", _batched_backward, lib=_LIBRARY)
_registry.register_autograd("zoo::fused_linear", _backward, setup_context=_setup_context, lib=_LIBRARY)


def _count(rows: Any, left: Any, w: Any, inp: Layout) -> int:
    """Count the floating-point operations of R products with rows."""
    return int(2 * math.prod(rows) // inp[0] * left[0] * w[1] * w[2])


def _flops(x: Any, w: Any, left: Any, right: Any, result: Any, bias: Any, out: Layout, inp: Layout, **_: Any) -> int:
    return _count(x, left, w, inp)


def _flops_combined(x: Any, matrices: Any, right: Any, result: Any, bias: Any, out: Layout, inp: Layout, **_: Any) -> int:
    return _count(x, (result[0] // matrices[0],), (1, matrices[0] * matrices[1], matrices[2]), inp)


def _flops_backward(
    g: Any, x: Any, w: Any, left: Any, right: Any, result: Any, out: Layout, inp: Layout, needs: Any, **_: Any
) -> int:
    products: int = sum((needs[0], needs[1], needs[4]))
    return products * _count(x, left, w, inp)


register_flop_formula(torch.ops.zoo.fused_linear)(_flops)
register_flop_formula(torch.ops.zoo.fused_combined)(_flops_combined)
register_flop_formula(torch.ops.zoo.fused_backward)(_flops_backward)
