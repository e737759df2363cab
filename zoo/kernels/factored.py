r"""The factored kernel: R block products instead of n^2, forward and backward, in tiles of rows that stay in the cache.

With factors of the structure tensor, A[i, j, k] = sum_r L[r, i] Q[r, j] P[r, k] (`zoo.kernels.factors`),

    y_k = sum_r P[r, k] (L_r . w) (Q_r . x)

for the definition of `zoo.kernels.block.real_matrix`. The backward pass is factored as well: neither the real matrix nor its
gradient ever exists, and x and w alone are kept for it.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import fused
from zoo.kernels.base import BYTES, CALL, SPEED, TRAFFIC, AxisLayout, Geometry, Kernel, Operand, Work, product
from zoo.kernels.block import real_matrix
from zoo.kernels.factors import Factors
from zoo.kernels.threads import in_threads, scratch

TILE = 256
"""Rows that are worked on at a time, of any width: of 64 to 512 the fastest or next to it."""
FEWEST_ROWS = 512
"""So few rows are never planned."""
HANDOVER = 3e-4
"""Seconds to share out work to threads that are not torch's, and to wait for them."""
PLANNED = (torch.float32, torch.float64)

Sums = list[Tensor | None]


class Factored(Kernel):
    """R products of elements in place of n^2, with factors of the structure tensor."""

    name = "factored"

    def can(self, work: Work) -> bool:
        """Return whether there are factors."""
        return work.rank is not None and not work.convolution

    def cost(self, work: Work) -> float:
        """Predict combining the weight, then for every tile copying, combining and multiplying."""
        # The operator does the same in less time; few rows are lost in Python's calls.
        if work.device != "cpu" or work.dtype not in PLANNED or work.rows < FEWEST_ROWS or fused.runs(work):
            return math.inf
        rank, n, rows, training = work.rank or 0, work.inp.n, work.rows, work.training
        i, o = work.inp.elements, work.out.elements
        threads = min(work.threads, max(1, rows // 64))
        tiles, combinations = -(-rows // TILE), BYTES * rank * i * o
        # One thread combines the weight and its gradients; in each tile a thread adds to its own gradient of the weight.
        combined = 2 * rank * work.m * i * o * (3 if training else 1) / SPEED
        combined += (6 + 3 * threads if training else 2) * combinations / TRAFFIC
        moved = BYTES * rows * (i * (9 * n + 3 * rank) + o * (6 * n + 2 * rank)) + 2 * tiles * combinations
        if not training:
            moved = BYTES * rows * (i + o) * (3 * n + rank)
        calls = tiles * (14 if training else 5) * CALL
        passes = (3 + work.learned) if training else 1
        shared = passes * rank * product(rows, i, o, threads) + moved / (TRAFFIC * threads) + calls / threads
        handovers = (4 if training else 2) * HANDOVER if work.threads > 1 else 0.0
        # Calls into torch take turns, whatever the number of threads.
        return (max(shared, calls) + (0.0 if work.prepared else combined) + handovers) / 0.97

    def prepare(self, weight: Operand) -> Tensor:
        """Combine the components, [R, out elements, in elements]."""
        factors = weight.factors()
        assert factors is not None
        return _matrices(factors.left, weight.components)

    def apply(
        self, x: Tensor, weight: Operand, bias: Tensor | None, prepared: Any = None, geometry: Geometry | None = None
    ) -> Tensor:
        """Multiply in tiles of rows, each of which stays in the cache."""
        factors = weight.factors()
        assert factors is not None
        return factored_linear(x, weight.components, factors, weight.out, weight.inp, bias, prepared)


def factored_linear(
    x: Tensor,
    w: Tensor,
    factors: Factors,
    out: AxisLayout,
    inp: AxisLayout,
    bias: Tensor | None = None,
    combined: Tensor | None = None,
) -> Tensor:
    """Multiply rows from the left by the weight: [..., in] to [..., out], for w [m, out elements, in elements].

    The factors are [R, m], [R, n] and [R, n], of the dtype and on the device of x and w; gradients reach all of them. A
    gradient of a gradient goes through the real matrix. The weight may be ``combined`` already, see `Factored.prepare`.
    """
    rows = _filled(x.reshape(-1, inp.channels), inp)
    y: Tensor = _Factored.apply(rows, w, bias if bias is None else _filled(bias[None], out), *factors, out, inp, combined)
    if out.size != out.n * out.width:
        y = y.view(-1, out.blocks, out.n * out.width)[..., : out.size]
    return y.reshape(*x.shape[:-1], out.channels)


class _Factored(torch.autograd.Function):
    """Rows of whole elements, [rows, blocks * n * width] to the same, and a bias [1, blocks * n * width]."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        left: Tensor,
        right: Tensor,
        result: Tensor,
        out: AxisLayout,
        inp: AxisLayout,
        combined: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(x, w, left, right, result)
        ctx.layouts = out, inp
        y = x.new_empty(len(x), out.n * out.elements)
        matrices = (_matrices(left, w) if combined is None else combined).mT
        to_result = result.T.contiguous()
        shift = None if bias is None else _as_components(bias.detach(), out)
        tile = _tile(x)

        def work(share: Sequence[tuple[Tensor, Tensor]]) -> None:
            parts: _Parts | None = None
            for rows, y_rows in share:
                parts = _parts(parts, rows, len(left), out, inp)
                parts.x.copy_(rows)
                torch.mm(right, parts.x.flatten(1), out=parts.of_x.flatten(1))
                torch.bmm(parts.of_x, matrices, out=parts.of_y)
                torch.mm(to_result, parts.of_y.flatten(1), out=parts.y.flatten(1))
                y_rows.copy_(parts.y) if shift is None else torch.add(parts.y, shift, out=y_rows)

        in_threads(work, _shares(tile, (x.detach(), inp), (y, out)))
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradients; a graph of them is only built by way of the definition."""
        if torch.is_grad_enabled():
            return _by_definition(ctx, g)
        return _Backward(ctx).gradients(g)


class _Backward:
    """The backward pass: what every tile adds to the gradient of the weight, and its rows of that of the input."""

    def __init__(self, ctx: Any) -> None:
        self.x, self.w, *factors = (t.detach() for t in ctx.saved_tensors)
        self.factors, (self.out, self.inp) = Factors(*factors), ctx.layouts
        needs = ctx.needs_input_grad
        self.of_input, self.of_w, self.of_bias, self.of_left, self.of_right, self.of_result = needs[:6]
        self.ranks, self.to_input = len(self.factors.left), self.factors.right.T.contiguous()
        self.matrices = _matrices(self.factors.left, self.w)

    def gradients(self, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, w, bias, the three factors, and None for the rest."""
        x, out, inp, flat_w = self.x, self.out, self.inp, self.w.flatten(1)
        gx = torch.empty(x.shape, dtype=x.dtype, device=x.device) if self.of_input else x
        shares = _shares(_tile(x), (x, inp), (g, out), (gx, inp))

        def total(parts: list[Sums]) -> tuple[Tensor | None, ...]:
            bias, matrices, right, result = (_sum(one) for one in zip(*parts, strict=True))
            flat = None if matrices is None else matrices.flatten(1)
            gw = (self.factors.left.T @ flat).view_as(self.w) if self.of_w and flat is not None else None
            left = flat @ flat_w.T if self.of_left and flat is not None else None
            shift = None if bias is None else bias.view(out.n, out.blocks, out.width).transpose(0, 1).reshape(1, -1)
            return gx if self.of_input else None, gw, shift, left, right, result, None, None, None

        return in_threads(total, [in_threads(self.sums, shares)])[0]

    def sums(self, share: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Sums:
        """Fill these rows of the input's gradient, and sum over them: bias, matrices, right and result factors."""
        new, n, m = self.x.new_zeros, self.inp.n, self.matrices
        bias = new(n, self.out.elements) if self.of_bias else None
        matrices = torch.zeros_like(m) if self.of_w or self.of_left else None
        right, result = (new(self.ranks, n) if needed else None for needed in (self.of_right, self.of_result))
        parts: _Parts | None = None
        for rows, g, gx in share:
            parts = _parts(parts, rows, self.ranks, self.out, self.inp)
            parts.y.copy_(g)
            if bias is not None:
                bias += parts.y.view(n, -1, self.out.elements).sum(1)
            if matrices is not None or right is not None or result is not None:
                parts.x.copy_(rows)
            if matrices is not None or result is not None:
                torch.mm(self.factors.right, parts.x.flatten(1), out=parts.of_x.flatten(1))
            if result is not None:
                torch.bmm(parts.of_x, m.mT, out=parts.of_y)
                result.addmm_(parts.of_y.flatten(1), parts.y.flatten(1).T)
            torch.mm(self.factors.result, parts.y.flatten(1), out=parts.of_y.flatten(1))
            if matrices is not None:
                torch.baddbmm(matrices, parts.of_y.mT, parts.of_x, out=matrices)  # in place, but counted by torch's counter
            if self.of_input or right is not None:
                torch.bmm(parts.of_y, m, out=parts.of_x)
            if right is not None:
                right.addmm_(parts.of_x.flatten(1), parts.x.flatten(1).T)
            if self.of_input:
                torch.mm(self.to_input, parts.of_x.flatten(1), out=parts.x.flatten(1))
                gx.copy_(parts.x)
        return [bias, matrices, right, result]


def _by_definition(ctx: Any, g: Tensor) -> Any:
    """Return gradients that can be differentiated again, through the real matrix."""
    x, w, *factors = ctx.saved_tensors
    whole = [layout._replace(channels=layout.n * layout.elements) for layout in ctx.layouts]
    y = F.linear(x, real_matrix(torch.einsum("ri,rj,rk->ijk", *factors), w, *whole))
    needs = ctx.needs_input_grad
    wanted = [tensor for tensor, needed in zip((x, w, *factors), (*needs[:2], *needs[3:6]), strict=True) if needed]
    found = iter(torch.autograd.grad(y, wanted, g, create_graph=True))
    of = [next(found) if needed else None for needed in (*needs[:2], *needs[3:6])]
    return (*of[:2], g.sum(0, keepdim=True) if needs[2] else None, *of[2:], None, None, None)


class _Parts(NamedTuple):
    """Memory for a tile: x and y as components, [n, t, blocks, width], and the R combinations of each, [R, t, elements]."""

    x: Tensor
    y: Tensor
    of_x: Tensor
    of_y: Tensor


def _parts(last: _Parts | None, rows: Tensor, ranks: int, out: AxisLayout, inp: AxisLayout) -> _Parts:
    """Return the memory of this thread for a tile, what the tile before used if it is of the same size."""
    t = rows.shape[1]
    if last is not None and last.x.shape[1] == t:
        return last
    shapes = [(e.n, t, e.blocks, e.width) for e in (inp, out)] + [(ranks, t, e.elements) for e in (inp, out)]
    sizes = [torch.Size(shape).numel() for shape in shapes]
    memory = scratch(sum(sizes), rows).split(sizes)
    return _Parts(*(part.view(shape) for part, shape in zip(memory, shapes, strict=True)))


def _matrices(left: Tensor, w: Tensor) -> Tensor:
    """Combine the components of the weight, [R, out elements, in elements]."""
    # In one of our threads: after an operation that torch shares out, its threads keep the cores busy for a while.
    return in_threads(lambda flat: left.detach() @ flat, [w.detach().flatten(1)])[0].view(-1, *w.shape[1:])


def _tile(x: Tensor) -> int:
    """Return the rows of a tile, such that all threads have about as many rows to work on."""
    if x.device.type != "cpu":
        return max(len(x), 1)
    threads = min(torch.get_num_threads(), max(1, len(x) // 64))
    tiles = max(1, threads * -(-len(x) // (threads * TILE)))
    return max(1, -(-len(x) // tiles))


def _shares(tile: int, *axes: tuple[Tensor, AxisLayout]) -> list[list[Any]]:
    """Cut several tensors of the same rows into tiles of components, and give every thread its run of them."""
    tiles = list(zip(*(_as_components(rows, layout).split(tile, 1) for rows, layout in axes), strict=True))
    share = -(-len(tiles) // torch.get_num_threads())
    return [tiles[start : start + share] for start in range(0, len(tiles), share)]


def _as_components(rows: Tensor, layout: AxisLayout) -> Tensor:
    """View rows of whole elements as components, [n, rows, blocks, width]."""
    return rows.view(len(rows), layout.blocks, layout.n, layout.width).permute(2, 0, 1, 3)


def _filled(rows: Tensor, layout: AxisLayout) -> Tensor:
    """Fill up the last element of every block with zeros."""
    missing = layout.n * layout.width - layout.size
    return F.pad(rows.view(len(rows), layout.blocks, layout.size), (0, missing)).flatten(1) if missing else rows


def _sum(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    total = parts[0]
    for part in parts[1:]:
        if total is not None and part is not None:
            total += part
    return total
