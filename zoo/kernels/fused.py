"""The fused kernel: the factored product as one CPU operator, compiled from ``fused.cpp`` (see `zoo.kernels.compiled`).

The operators of ``torch.ops.zoo`` have fake implementations and gradients. Second derivatives are computed by the definition.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from zoo.algebras import Factors
from zoo.kernels.assembly import differentiable_gradients
from zoo.kernels.base import BYTES, AxisLayout, Call, Geometry, Kernel, Operand, Prepared, Work, product_cost
from zoo.kernels.block import factored_definition
from zoo.kernels.compiled import is_available as is_available
from zoo.kernels.compiled import is_expected, status
from zoo.kernels.internals import autocast_dtype, is_plain_mode

Layout = Sequence[int]
DTYPES = (torch.float32, torch.float64)
HALF_SPEED = 4  # speed of products in bfloat16 relative to float32; combining is not faster
FEWEST_ELEMENTS = 48 * 48  # elements of a weight below which the operator is not used: narrower products are slower than block
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
    """Return whether the operator supports a product and is expected to be available."""
    is_supported = not work.convolution and work.device == "cpu" and work.dtype in (*DTYPES, torch.bfloat16)
    return is_supported and is_worth_compiling(work.out, work.inp) and is_expected()


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
        """Return whether there are factors and the operator supports the product, for any number of rows.

        Rounding must not depend on the batch size.
        """
        return bool(work.rank) and runs(work)

    def cost(self, work: Work) -> float:
        """Predict combining the weight, and products of elements with all components in the cache."""
        i, o = work.inp.elements, work.out.elements
        passes = (3 + work.learned) if work.training else 1
        packing = (1 + work.speeds.copied_width / i) * (1 + work.speeds.copied_width / o)
        products = passes * work.rank * packing * product_cost(work.speeds, work.rows, i, o, work.threads)
        moved = BYTES * passes * work.rows * (i + o) * (work.inp.n + work.rank) / (4 * work.speeds.traffic * work.threads)
        weights = 0.0 if work.prepared else passes * BYTES * (work.m + work.rank) * i * o / work.speeds.traffic
        # All kernels predict float32 times; in bfloat16 only products are faster, so everything else weighs more.
        speed = HALF_SPEED if work.dtype == torch.bfloat16 else 1
        return products + speed * (moved + weights + (10 if work.training else 5) * work.speeds.call)

    def missing(self) -> str | None:
        """Return why the operator cannot run, or None."""
        return None if is_available() else status()

    def prepare(self, weight: Operand) -> Tensor:
        """Combine the components to [R, out elements, in elements]."""
        w = weight.components
        return torch.ops.zoo.fused_combinations(w, w, weight.factors().left)  # type: ignore[no-any-return]

    def bind(self, weight: Operand, prepared: Prepared = None) -> Call | None:
        """Return a call of the operator without autograd, which takes a third of the time for one row."""
        left, right, result = weight.factors()
        w, layouts = weight.components, (tuple(weight.out), tuple(weight.inp))
        if prepared is not None:
            combined = torch.ops.zoo.fused_combined.default
            return lambda x, bias: combined(x, prepared, right, result, bias, *layouts)
        rows = torch.ops.zoo.fused_rows.default
        return lambda x, bias: rows(x, w, left, right, result, bias, *layouts)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
        """Multiply, by the combinations if they are cached."""
        factors = weight.factors()
        needs_gradient = torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad))
        if prepared is None or needs_gradient:
            return fused_linear(x, weight.components, factors, weight.out, weight.inp, bias)
        y: Tensor = torch.ops.zoo.fused_combined(x, prepared, factors.right, factors.result, bias, weight.out, weight.inp)
        return y


def fused_linear(
    x: Tensor, w: Tensor, factors: Factors, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    """Multiply rows by the weight: [..., in] to [..., out], for w [m, out elements, in elements] and factors [R, m or n].

    x, w, the bias and the factors receive gradients. Autocast applies to the rows, the bias and the combined weight.
    Transformations of `torch.func` and forward-mode derivatives use the definition.
    """
    dtype = autocast_dtype(x.device)
    if dtype is not None and x.dtype != torch.float64:
        x, bias = x.to(dtype), None if bias is None else bias.to(dtype)
    if not is_plain_mode():
        return factored_definition(x, w, factors, bias, out, inp)
    return torch.ops.zoo.fused_linear(x, w, *factors, bias, out, inp)  # type: ignore[no-any-return]


def _check_devices(*tensors: Tensor | None) -> None:
    """Raise torch's error for mixed devices: with one meta tensor, torch calls the fake implementation."""
    devices = {tensor.device for tensor in tensors if tensor is not None}
    if len(devices) > 1:
        raise RuntimeError(f"expected all tensors to be on the same device, got {', '.join(sorted(map(str, devices)))}")


def _fake_rows(x: Tensor, *inputs: Any) -> Tensor:
    *tensors, bias, out, inp = inputs
    _check_devices(x, *tensors, bias)
    return F.linear(x, x.new_empty(out[0], inp[0]), bias)


def _fake_combinations(x: Tensor, w: Tensor, left: Tensor) -> Tensor:
    _check_devices(x, w, left)
    return x.new_empty((len(left), *w.shape[1:]))


def _fake_backward(g: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    *tensors, out, _, needs = inputs
    _check_devices(g, *tensors)
    bias = g.new_empty(out[0] if needs[5] else 0, dtype=torch.promote_types(g.dtype, torch.float32))
    return *(t.new_empty(t.shape if need else 0) for t, need in zip(tensors, needs, strict=False)), bias


def _setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
    *tensors, bias, ctx.out, ctx.inp = inputs
    ctx.save_for_backward(*tensors)
    ctx.bias_dtype = None if bias is None else bias.dtype


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    tensors, needs = ctx.saved_tensors, list(ctx.needs_input_grad[:6])
    if torch.is_grad_enabled():
        x, w, *factors = tensors
        y = factored_definition(x, w, factors, None, AxisLayout(*ctx.out), AxisLayout(*ctx.inp))
        gradients = [*differentiable_gradients(y, tensors, needs[:5], g), g.flatten(0, -2).sum(0)]
    else:
        gradients = torch.ops.zoo.fused_backward(g, *tensors, ctx.out, ctx.inp, needs)
    *grads, bias = (gradient if need else None for gradient, need in zip(gradients, needs, strict=True))
    return *grads, None if bias is None else bias.to(ctx.bias_dtype), None, None


_registry.register_fake("zoo::fused_linear", _fake_rows, lib=_LIBRARY)
_registry.register_fake("zoo::fused_combined", _fake_rows, lib=_LIBRARY)
_registry.register_fake("zoo::fused_combinations", _fake_combinations, lib=_LIBRARY)
_registry.register_fake("zoo::fused_backward", _fake_backward, lib=_LIBRARY)
_registry.register_autograd("zoo::fused_linear", _backward, setup_context=_setup_context, lib=_LIBRARY)


@register_flop_formula([torch.ops.zoo.fused_linear, torch.ops.zoo.fused_combined])
def _flops(x: Layout, w: Layout, *inputs: Any, **_: object) -> int:
    """Count the floating-point operations of R products with rows, from the shapes."""
    result, inp = inputs[-4], inputs[-1]
    return int(2 * math.prod(x) // inp[0] * result[0] * w[1] * w[2])


@register_flop_formula(torch.ops.zoo.fused_backward)
def _flops_backward(g: Layout, x: Layout, *inputs: Any, **_: object) -> int:
    *tensors, out, inp, needs = inputs
    return int(needs[0] + needs[1] + needs[4]) * _flops(x, *tensors, None, out, inp)


FEW_COLUMNS = 8  # columns up to which the weight is multiplied in its memory order


class Thin(Kernel):
    """All products of components as m matrix products, without assembling the real matrix."""

    name = "thin"

    def can(self, work: Work) -> bool:
        """Return whether no gradient is needed."""
        return not work.training and not work.convolution

    def cost(self, work: Work) -> float:
        """Predict reading the components and summing their products."""
        if work.device != "cpu" or work.dtype not in DTYPES or not work.rows:
            return math.inf
        n, rows, i, o = work.inp.n, work.rows, work.inp.elements, work.out.elements
        read = 1.3 * BYTES * work.m * i * o / work.speeds.reading
        if rows > (FEW_ROWS // 2 if work.prepared else FEW_ROWS) and (work.rank or not runs(work)):
            return math.inf  # combining the weight, or its real matrix, is faster
        if runs(work):
            multiplied = product_cost(work.speeds, rows * n, i, work.m * o, work.threads, unpacked=rows * n)
            return (max(multiplied, read) + 6 * work.speeds.call) / 0.8
        # Several columns read a matrix more slowly than one.
        pairs = max(product_cost(work.speeds, rows * n, i, work.m * o, work.threads, unpacked=FEW_COLUMNS), read)
        return (pairs + 3 * BYTES * rows * n * work.m * o / work.speeds.traffic + 7 * work.speeds.call) / 0.8

    def bind(self, weight: Operand, prepared: Prepared = None) -> Call | None:
        """Return a call of the compiled operator, whose combinations are the components, if it is available.

        y_k is the sum of all products w_i x_j with the coefficients A[i, j, k].
        """
        w, out, inp = weight.components, weight.out, weight.inp
        is_supported = w.device.type == "cpu" and w.dtype in DTYPES and is_worth_compiling(out, inp)
        if not is_supported or not is_available():
            return None
        sums, identity, layouts = weight.action().flatten(0, 1), _identity(inp.n, w.dtype), (tuple(out), tuple(inp))
        multiply = torch.ops.zoo.fused_combined.default
        return lambda x, bias: multiply(x, w, identity, sums, bias, *layouts)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
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
    m, n, _ = structure.shape
    parts = inp.split(x.reshape(-1, inp.channels))
    count, columns = len(parts), parts.flatten(0, 1)
    # The order of the two operands changes the time to read the weight by up to a factor of 2.
    if len(columns) <= FEW_COLUMNS:
        pairs = torch.bmm(columns.expand(m, -1, -1), w.mT).view(m, count, n, out.elements).transpose(0, 1)
    else:
        pairs = torch.bmm(w, columns.T.expand(m, -1, -1)).view(m, out.elements, count, n).permute(2, 0, 3, 1)
    by_row = structure.permute(2, 0, 1).reshape(n, m * n)
    y = by_row @ pairs.reshape(count, m * n, out.elements)
    y = out.join(y.view(count, n, out.blocks, out.width)).view(*x.shape[:-1], out.channels)
    return y if bias is None else y + bias
