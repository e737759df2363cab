r"""Assemble real matrices from components without a matrix product, so that tables of 0 and 1 copy and never round.

With a product A, [m, n, n], the block of the real matrix at row k, column j and the gradient of the components are

    M[k, j] = sum_i A[i, j, k] w[i]          gw[i] = sum_jk A[i, j, k] gM[k, j]

On a CPU both are sums of whole rows (`torch.nn.functional.embedding_bag`) over the entries of A that are not zero.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.base import AxisLayout, Part

LARGE = 2**20  # size of a tile of a larger matrix, which should fit in the cache


def real_matrix(structure: Tensor, components: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Return the real matrix of left multiplication by w.

    With e_i e_j = sum_k A[i, j, k] e_k, the block at row k, column j is

        M[k, j] = sum_i A[i, j, k] w[i]

    for every pair of an output and an input block of the two layouts.

    The structure A is [m, n, n], with m < n for weights in a subspace; w is [m, out.elements, in.elements, *kernel], and the
    real matrix [out.channels, in.channels, *kernel].

    Example:
        >>> complex_numbers = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])
        >>> one_plus_two_i = torch.tensor([[[1.0]], [[2.0]]])
        >>> real_matrix(complex_numbers, one_plus_two_i, AxisLayout(2, n=2), AxisLayout(2, n=2))
        tensor([[ 1., -2.],
                [ 2.,  1.]])
    """
    n, m, kernel = out.n, components.shape[0], components.shape[3:]
    w = components.reshape(m, out.blocks, 1, out.width, inp.blocks, 1, inp.width, -1)
    a = structure.mT.reshape(m, 1, n, 1, 1, n, 1, 1)
    matrix = a[0] * w[0]
    for i in range(1, m):
        matrix = torch.addcmul(matrix, a[i], w[i])
    matrix = matrix.reshape(out.blocks, n * out.width, inp.blocks, n * inp.width, -1)
    return matrix[:, : out.size, :, : inp.size].reshape(out.channels, inp.channels, *kernel)


def matrix_by_product(structure: Tensor, components: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    """Return `real_matrix` as one product, in few operations of at most six axes, for exported graphs."""
    n, kernel = out.n, components.shape[3:]
    area = math.prod(kernel)
    rows = structure.permute(2, 1, 0).reshape(n * n, -1)
    blocks = (rows @ components.flatten(1)).view(n, n, out.blocks, out.width, inp.blocks, inp.width * area)
    matrix = blocks.permute(2, 0, 3, 4, 1, 5)
    if out.is_padded or inp.is_padded:
        matrix = matrix.reshape(out.blocks, n * out.width, inp.blocks, n * inp.width * area)
        matrix = matrix[:, : out.size, :, : inp.size * area]
    return matrix.reshape(out.channels, inp.channels, *kernel)


class Terms(NamedTuple):
    """A sparse matrix of sums of rows: sum b has the terms from ``offsets[b]`` on."""

    terms: Tensor
    offsets: Tensor
    coefficients: Tensor

    def sum_rows(self, rows: Tensor) -> Tensor:
        """Sum rows, [rows, columns] to [sums, columns]."""
        found: Tensor = torch.embedding_bag(rows, self.terms, self.offsets, False, 0, False, self.coefficients)[0]  # mode sum
        return found


@lru_cache(1024)
def entries(text: str) -> tuple[int, int, list[tuple[int, int, int, float]]]:
    """Read an algebra as `zoo.algebras.literal` writes it: m, n and the entries (i, j, k, A[i, j, k])."""
    m, n, *words = text.split()
    numbers = [iter(words)] * 4
    return int(m), int(n), [(int(i), int(j), int(k), float(a)) for i, j, k, a in zip(*numbers, strict=True)]


@lru_cache(1024)
def _sparse_terms(text: str, backward: bool, dtype: torch.dtype) -> Terms:
    m, n, known = entries(text)
    sums: list[list[tuple[int, float]]] = [[] for _ in range(m if backward else n * n)]
    for i, j, k, a in known:
        bag, term = (i, k * n + j) if backward else (k * n + j, i)
        sums[bag].append((term, a))
    with torch.inference_mode(False), torch.device("cpu"):
        coefficients = torch.tensor([a for bag in sums for _, a in bag], dtype=dtype)
    return _index([[term for term, _ in bag] for bag in sums])._replace(coefficients=coefficients)


@cache
def _dense_index(m: int, n: int, backward: bool) -> Terms:
    bags, terms = (m, n * n) if backward else (n * n, m)
    return _index([list(range(terms))] * bags)


def _index(bags: list[list[int]]) -> Terms:
    with torch.inference_mode(False), torch.device("cpu"):
        offsets = torch.tensor([0, *map(len, bags)]).cumsum(0)[:-1]
        return Terms(torch.tensor([term for bag in bags for term in bag], dtype=torch.long), offsets, torch.empty(0))


def terms_of(part: Part, backward: bool = False) -> Terms:
    """Return the sums by which the matrix is assembled, or with ``backward`` the gradient of the components."""
    if part.table is None:
        return _sparse_terms(part.literal, backward, part.components.dtype)
    m, n, _ = part.table.shape
    order = (0, 2, 1) if backward else (2, 1, 0)
    return _dense_index(m, n, backward)._replace(coefficients=part.table.detach().permute(order).flatten())


def action_of(part: Part) -> Tensor:
    """Return the product of a part, [m, n, n]."""
    if part.table is not None:
        return part.table
    m, n, known = entries(part.literal)
    table = torch.zeros(m, n, n, dtype=torch.float64, device="cpu")
    for i, j, k, a in known:
        table[i, j, k] = a
    return table.to(part.components)


def is_channels_last(w: Tensor) -> bool:
    """Return whether the kernels of components [m, out, in, height, width] are stored channels last, as is then the matrix."""
    return w.dim() == 5 and w.stride(2) == 1 and not w.is_contiguous()


def fold(w: Tensor, channels_last: bool) -> Tensor:
    """Return components, or a matrix [1, out, in, *kernel], as [m, out, 1, in * area]; channels last as [m, out, area, in]."""
    if channels_last:
        return w.permute(0, 1, 3, 4, 2).flatten(2, 3)
    return w.reshape(*w.shape[:2], 1, -1)


def unfold(w: Tensor, kernel: torch.Size, channels_last: bool) -> Tensor:
    """Undo `fold` for a kernel of this shape."""
    if channels_last:
        grid: Tensor = w.unflatten(2, kernel)
        return grid.permute(0, 1, 4, 2, 3)
    return w.view(*w.shape[:2], -1, *kernel)


def assemble(part: Part, dtype: torch.dtype) -> Tensor:
    """Return the real matrix in a dtype, without gradients."""
    w, out, inp, n = part.components, part.out, part.inp, part.out.n
    if w.device.type != "cpu":
        return real_matrix(action_of(part), w.detach(), out, inp).to(dtype)
    rows, axes, sums = _rows(w.detach()), _axes(w, inp), terms_of(part)
    m, size = rows.shape
    if n * n * size <= LARGE:
        blocks = sums.sum_rows(rows).view(n, n, out.blocks, out.width, *axes)
        whole = blocks.permute(_ORDER[len(axes)]).to(dtype, memory_format=torch.contiguous_format)
    else:
        rows = rows.view(m, out.elements, -1)
        whole = torch.empty(out.blocks, n, out.width, *axes[:-1], n, axes[-1], dtype=dtype)
        for block, tile, elements in _tiles(out, n * n * rows.shape[2]):
            blocks = sums.sum_rows(rows[:, elements].reshape(m, -1)).view(n, n, 1, -1, *axes)
            whole[block : block + 1, :, tile].copy_(blocks.permute(_ORDER[len(axes)]))
    if out.is_padded or inp.is_padded:
        whole = whole.reshape(out.blocks, n * out.width, *axes[:-1], n * axes[-1])
        whole = whole[:, : out.size, ..., : inp.size * (axes[-1] // inp.width)].contiguous()
    if len(axes) == 2:
        return whole.reshape(out.channels, inp.channels, *w.shape[3:])
    return whole.reshape(out.channels, *w.shape[3:], inp.channels).permute(0, 3, 1, 2)


def gradients(part: Part, g: Tensor, need_table: bool) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the components and, if needed, of the product, for the gradient of the matrix."""
    w, out, inp, n = part.components, part.out, part.inp, part.out.n
    if w.device.type != "cpu":
        return _gradients_by_definition(part, g, need_table)
    axes, sums, m = _axes(w, inp), terms_of(part, backward=True), len(w)
    g = g if len(axes) == 2 else g.permute(0, 2, 3, 1)
    if inp.is_padded or out.is_padded:
        g = g.reshape(out.blocks, out.size, *axes[:-1], -1)
        g = F.pad(g, (0, n * axes[-1] - g.shape[-1], *(0, 0) * (len(axes) - 1), 0, n * out.width - out.size))
    g = g.reshape(out.blocks, n, out.width, *axes[:-1], n, axes[-1]).permute(_INVERSE[len(axes)])
    if g.numel() <= LARGE:
        blocks = g.reshape(n * n, -1).to(w.dtype)
        gw, g_table = sums.sum_rows(blocks), blocks @ _rows(w.detach()).T if need_table else None
    else:
        rows, g_table = _rows(w.detach()).view(m, out.elements, -1), w.new_zeros(n * n, m) if need_table else None
        gw = torch.empty_like(rows)
        for block, tile, elements in _tiles(out, n * n * rows.shape[2]):
            blocks = g[:, :, block, tile].reshape(n * n, -1).to(w.dtype)
            gw[:, elements] = sums.sum_rows(blocks).view(m, -1, rows.shape[2])
            if g_table is not None:
                g_table.addmm_(blocks, rows[:, elements].reshape(m, -1).T)  # faster than the transposed product
    gw = gw.view(w.shape) if len(axes) == 2 else gw.view(*w.shape[:2], *w.shape[3:], w.shape[2]).permute(0, 1, 4, 2, 3)
    return gw, None if g_table is None else g_table.view(n, n, m).permute(2, 1, 0).contiguous()


_ORDER = {2: (2, 0, 3, 4, 1, 5), 3: (2, 0, 3, 4, 5, 1, 6)}  # from [k, j, out block, row, *axes] to the order of the matrix
_INVERSE = {2: (1, 4, 0, 2, 3, 5), 3: (1, 5, 0, 2, 3, 4, 6)}


def _rows(w: Tensor) -> Tensor:
    """Return components as [m, all others], in the order of their memory."""
    return (w.permute(0, 1, 3, 4, 2) if is_channels_last(w) else w).reshape(len(w), -1)


def _axes(w: Tensor, inp: AxisLayout) -> tuple[int, ...]:
    """Return the input blocks and their width times the kernel area; channels last the area, the blocks and their width."""
    area = math.prod(w.shape[3:])
    return (area, inp.blocks, inp.width) if is_channels_last(w) else (inp.blocks, inp.width * area)


def _gradients_by_definition(part: Part, g: Tensor, need_table: bool) -> tuple[Tensor, Tensor | None]:
    with torch.enable_grad():
        w, table = part.components.detach().requires_grad_(), action_of(part).detach().requires_grad_(need_table)
        matrix = real_matrix(table, w, part.out, part.inp)
        gw, *rest = torch.autograd.grad(matrix, (w, table) if need_table else (w,), g.to(w.dtype))
    return gw, rest[0] if rest else None


def _tiles(out: AxisLayout, size: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield tiles of the output elements, of ``size`` each: the block, the elements in it, and the range of all elements."""
    step = max(1, LARGE // size)
    for block in range(out.blocks):
        for start in range(0, out.width, step):
            stop = min(start + step, out.width)
            yield block, slice(start, stop), slice(block * out.width + start, block * out.width + stop)


def differentiable_gradients(y: Tensor, inputs: Sequence[Tensor], needs: Sequence[bool], g: Tensor) -> list[Tensor | None]:
    """Return differentiable gradients of a ``y`` that was computed by the definition; None where not needed."""
    differentiated = [tensor for tensor, needed in zip(inputs, needs, strict=True) if needed]
    gradients = iter(torch.autograd.grad(y, differentiated, g, create_graph=True) if differentiated else ())
    return [next(gradients) if needed else None for needed in needs]
