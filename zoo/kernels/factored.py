r"""The factored kernels: R products or block convolutions of elements instead of n^2, in torch operations.

With factors of the structure tensor, A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.algebras.properties`),

    y_k = sum_r P[r, k] (L_r . w) (Q_r . x)

Neither the real matrix nor its gradient is ever computed, and only x and w are saved for the backward pass.
`zoo.kernels.fused` is a faster, compiled version of the product. A convolution is one convolution of R groups; components are
combined once per position, for a few images at a time so that the combinations fit in the cache.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.algebras import Factors
from zoo.errors import InputError
from zoo.kernels import fused
from zoo.kernels.assembly import differentiable_gradients, real_matrix
from zoo.kernels.base import BYTES, AxisLayout, Geometry, Kernel, Operand, Prepared, Work, product_cost, real_cost
from zoo.kernels.block import factored_definition
from zoo.kernels.compiled import is_expected

FEWEST_ROWS = 512  # rows below which the kernel runs only on request


class Factored(Kernel):
    """R products of elements instead of n^2."""

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
        products = passes * rank * product_cost(work.speeds, work.rows, i, o, work.threads)
        moved = BYTES * work.rows * (i + o) * passes * (2 * n + rank)
        weights = (0.0 if work.prepared else 10.0) * passes * BYTES * rank * i * o
        return (products + (moved + weights) / (work.speeds.traffic * work.threads) + 15 * passes * work.speeds.call) / 0.75

    def prepare(self, weight: Operand) -> Tensor:
        """Combine the components to [R, out elements, in elements]."""
        return _combine(mix, weight.factors().left, weight.components, weight.components.dtype)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
        """Multiply, by the combinations if they are cached."""
        return factored_linear(x, weight.components, weight.factors(), weight.out, weight.inp, bias, prepared)


Mix = Callable[[Tensor, Tensor, Tensor, bool], None]
"""A function like `mix`, which a GPU kernel can replace."""


def mix(x: Tensor, factor: Tensor, y: Tensor, transposed: bool) -> None:
    """Combine components, x [n, vectors, width] to y [R, vectors, width], by a factor [R, n], or back by its transpose."""
    factor, columns = (factor.T if transposed else factor).to(x.dtype), x.flatten(1)
    if y.is_contiguous() and y.dtype == x.dtype:
        torch.mm(factor, columns, out=y.view(len(y), -1))
    else:
        y.copy_((factor @ columns).view(y.shape))


class Method(NamedTuple):
    """How a factored product is computed.

    Attributes:
        mixes: The functions that combine components by each of the three factors.
        keep: Whether to save the combinations of the input and the weight for the backward pass, instead of the input, where
            the factors need no gradient; then there are no second derivatives.
    """

    mixes: tuple[Mix, Mix, Mix] = (mix, mix, mix)
    keep: bool = False


PLAIN = Method()


def factored_linear(
    x: Tensor,
    w: Tensor,
    factors: Factors,
    out: AxisLayout,
    inp: AxisLayout,
    bias: Tensor | None,
    combined: Tensor | None = None,
    method: Method = PLAIN,
) -> Tensor:
    """Multiply rows by the weight: [..., in] to [..., out], for w [m, out elements, in elements].

    The factors, [R, m], [R, n] and [R, n] in the dtype and on the device of w, receive gradients too. Products are computed in
    the dtype of x. Second derivatives go through the real matrix. ``combined`` is the cached result of `Factored.prepare`.
    """
    y: Tensor = _Factored.apply(pad_rows(x, inp), w, *factors, out, inp, combined, method)
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
        out, inp, combined, method = options
        of_left, of_right, of_result = method.mixes
        matrices = _combine(of_left, left, w, x.dtype) if combined is None else combined
        parts = _gather(of_right, right, x, inp)
        ctx.keep = method.keep and not ctx.needs_input_grad[3]
        ctx.save_for_backward(*((parts, matrices) if ctx.keep else (x, None)), w, left, right, result)
        ctx.options = out, inp, method.mixes
        return _scatter(of_result, result, torch.bmm(parts, matrices.mT), out)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients; if they are to be differentiated, by the definition."""
        x, matrices, w, left, right, result = ctx.saved_tensors
        (out, inp, mixes), needs = ctx.options, ctx.needs_input_grad[:5]
        (of_left, of_right, of_result), (need_x, need_w, need_left, need_right, need_result) = mixes, needs
        if torch.is_grad_enabled():
            if ctx.keep:
                raise InputError("a kernel that keeps combinations has no second derivatives: use another", code="unsupported")
            whole = (layout._replace(channels=layout.n * layout.elements) for layout in (out, inp))
            y = factored_definition(x, w, (left, right, result), None, *whole)
            return *differentiable_gradients(y, (x, w, left, right, result), needs, g), None, None, None, None
        matrices = matrices if ctx.keep else _combine(of_left, left, w, x.dtype)
        g_parts = _gather(of_result, result, g, out)
        gx = gw = g_left = g_right = g_result = None
        if need_x or need_right:
            gx_parts = torch.bmm(g_parts, matrices)
            gx = _scatter(of_right, right, gx_parts, inp) if need_x else None
            g_right = gx_parts.flatten(1) @ _components(x, inp).flatten(1).T if need_right else None
        if need_w or need_left or need_result:
            x_parts = x if ctx.keep else _gather(of_right, right, x, inp)
            if need_w or need_left:
                g_matrices = torch.bmm(g_parts.mT, x_parts)
                gw = _sum_combinations(of_left, left, g_matrices, w) if need_w else None
                g_left = g_matrices.flatten(1) @ w.to(x.dtype).flatten(1).T if need_left else None
            if need_result:
                g_result = torch.bmm(x_parts, matrices.mT).flatten(1) @ _components(g, out).flatten(1).T
        return gx, gw, g_left, g_right, g_result, None, None, None, None


def _combine(mix: Mix, left: Tensor, w: Tensor, dtype: torch.dtype) -> Tensor:
    """Combine the components of the weight to [R, out elements, in elements]."""
    matrices = w.new_empty(len(left), *w.shape[1:], dtype=dtype)
    mix(w.detach().reshape(len(w), 1, -1), left.detach(), matrices.view(len(left), 1, -1), False)
    return matrices


def _sum_combinations(mix: Mix, left: Tensor, matrices: Tensor, w: Tensor) -> Tensor:
    """Sum [R, out elements, in elements] into components like those of w."""
    summed = torch.empty_like(w, memory_format=torch.contiguous_format)
    mix(matrices.view(len(left), 1, -1), left, summed.view(len(w), 1, -1), True)
    return summed


def _gather(mix: Mix, factor: Tensor, rows: Tensor, layout: AxisLayout) -> Tensor:
    """Combine the components of rows to [R, rows, elements] by a factor [R, n]."""
    components = _components(rows, layout)
    parts = rows.new_empty(len(factor), *components.shape[1:])
    mix(components, factor, parts, False)
    return parts.view(len(factor), -1, layout.elements)


def _scatter(mix: Mix, factor: Tensor, parts: Tensor, layout: AxisLayout) -> Tensor:
    """Sum [R, rows, elements] into the components of rows by a factor [R, n]."""
    rows = parts.new_empty(parts.shape[1], layout.n * layout.elements)
    components = _components(rows, layout)
    mix(parts.view(len(parts), *components.shape[1:]), factor, components, True)
    return rows


def _components(rows: Tensor, layout: AxisLayout) -> Tensor:
    """Return the components of the vectors of rows of whole elements, [n, rows * blocks, width], a view if possible."""
    return rows.reshape(-1, layout.n, layout.width).transpose(0, 1)


GROUP_UNIT = 16  # Torch's convolution is fast if the channels of a group are a multiple of this
MIXING = 170  # time to combine the components of an input channel, in multiplications of the real convolution
CHUNK_BYTES = 2**21  # bytes of the combinations of a chunk of images, which should fit in the cache


class FactoredConv(Kernel):
    """R convolutions of elements instead of n^2, for fixed products and channels that are a multiple of n."""

    name = "factored"

    def can(self, work: Work) -> bool:
        """Return whether there are fixed factors and whole elements."""
        whole = all(layout.blocks == 1 and not layout.is_padded for layout in (work.inp, work.out))
        return work.convolution and work.rank > 0 and whole and not work.learned

    def cost(self, work: Work) -> float:
        """Predict R / n^2 of the real convolution plus combining the components."""
        # Measurements show no gain for 1 x 1 kernels and for R > n^2 / 2 (complex numbers).
        i, o = work.inp.elements, work.out.elements
        gains = work.area > 1 and not i % GROUP_UNIT and not o % GROUP_UNIT and work.device == "cpu"
        gains = gains and 2 * work.rank <= work.inp.n**2
        if not gains or work.dtype not in fused.DTYPES or not work.rows or not is_expected():
            return math.inf
        mixing = MIXING * work.inputs / (work.rows * work.area * o)
        return real_cost(work) * (work.rank / work.inp.n**2 + mixing)

    def apply(self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Prepared, geometry: Geometry | None) -> Tensor:
        """Convolve as one convolution of R groups."""
        assert geometry is not None
        return factored_conv(x, weight.components, weight.factors(), geometry, bias)


def factored_conv(x: Tensor, w: Tensor, factors: Factors, geometry: Geometry, bias: Tensor | None = None) -> Tensor:
    """Convolve [N, n i, *space] with w [m, o, i, *kernel] to [N, n o, *space]; the factors receive no gradient.

    Second derivatives go through the real matrix.
    """
    return _FactoredConv.apply(x, w, bias, *factors, geometry)  # type: ignore[no-any-return]


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
            options = *geometry, False, [0] * (x.dim() - 2), len(left)
            part = torch.convolution(_combine_channels(chunk, right), kernels, None, *options)
            if y is None:
                y = _empty(x, len(x), result.shape[1] * w.shape[1], *part.shape[2:])
            fused.mix(part, result.T, y[start : (start := start + len(part))])
        assert y is not None
        return y if bias is None else y.add_(bias.view(-1, *(1,) * (x.dim() - 2)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
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
            inputs = _combine_channels(g[chunk], result), _combine_channels(x[chunk], right), kernels
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
    """Return an uninitialized tensor, channels last in memory if ``like`` is."""
    if like.is_contiguous() or like.stride(1) != 1:
        return like.new_empty(shape)
    return like.new_empty(shape[0], *shape[2:], shape[1]).movedim(-1, 1)


def _combine_channels(x: Tensor, factor: Tensor) -> Tensor:
    """Combine components to [N, R c, *space], channels last in memory, which torch convolves fastest."""
    y = x.new_empty(len(x), *x.shape[2:], len(factor) * x.shape[1] // factor.shape[1]).movedim(-1, 1)
    fused.mix(x, factor, y)
    return y


def _kernels(left: Tensor, w: Tensor) -> Tensor:
    """Combine the components of the weight to [R o, i, *kernel], the kernels of R groups."""
    return (left @ w.reshape(len(w), -1)).view(len(left) * w.shape[1], *w.shape[2:])
