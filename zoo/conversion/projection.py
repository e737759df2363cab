"""The nearest hypercomplex weights to a real matrix that was trained without them."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.kernels import AxisLayout


def arrange(matrix: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Rearrange a real matrix so that its algebra blocks become rows (Van Loan and Pitsianis 1993).

    [out.channels, in.channels, *kernel] becomes [n * n, out.blocks, out.width, in.blocks, in.width, area]: row k n + j is block
    row k, block column j; padding is zero.
    """
    m = matrix.reshape(out.blocks, out.size, inp.blocks, inp.size, -1)
    m = F.pad(m, (0, 0, 0, inp.n * inp.width - inp.size, 0, 0, 0, out.n * out.width - out.size))
    m = m.reshape(out.blocks, out.n, out.width, inp.blocks, inp.n, inp.width, -1)
    return m.permute(1, 4, 0, 2, 3, 5, 6).flatten(0, 1)


def nearest_components(matrix: Tensor, structure: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Return the w that minimises || matrix - real_matrix(structure, w) ||_F, [m, out.elements, in.elements, *kernel].

    Each place (o, c) of the blocks is a least-squares problem of its own: M_kj = sum_i A[i, j, k] w_i over the pairs (k, j)
    that are not padding. Weights that only meet padding come out as zero.
    """
    n, m = out.n, structure.shape[0]
    arranged = arrange(matrix.double(), out, inp)
    blocks = arranged.shape[1], arranged.shape[3], arranged.shape[5]
    rows = arranged.permute(0, 2, 4, 1, 3, 5).flatten(3)
    system = structure.detach().to(rows).permute(2, 1, 0).reshape(n * n, m)
    w = rows.new_zeros(m, *rows.shape[1:])
    for present_k, o in _patterns(out):
        for present_j, c in _patterns(inp):
            pairs = (present_k[:, None] & present_j[None, :]).flatten()
            w[:, o[:, None], c] = torch.einsum("ip,pocr->iocr", torch.linalg.pinv(system[pairs]), rows[pairs][:, o][:, :, c])
    w = w.reshape(*w.shape[:3], *blocks).permute(0, 3, 1, 4, 2, 5)
    return w.reshape(m, out.elements, inp.elements, *matrix.shape[2:]).to(matrix.dtype)


def _patterns(axis: AxisLayout) -> list[tuple[Tensor, Tensor]]:
    """Group the places of an axis by which of their n components are real channels: pairs of a mask [n] and place numbers."""
    present = torch.arange(axis.n * axis.width).reshape(axis.n, axis.width) < axis.size
    masks, which = present.unique(dim=1, return_inverse=True)
    return [(mask, (which == i).nonzero().flatten()) for i, mask in enumerate(masks.T)]


def nearest_product(arranged: Iterable[Tensor], n: int) -> Tensor:
    r"""Return the structure tensor whose Kronecker sums come nearest to the given matrices together, [n, n, n].

    A sum of n Kronecker products is a rank-n matrix after `arrange`, so the best product is spanned by the n leading left
    singular vectors (Van Loan and Pitsianis 1993), found here from the [n^2, n^2] Gram matrix; scaled to the energy n^2 of a
    signed table.
    """
    gram = torch.zeros(n * n, n * n, dtype=torch.float64)
    for rows in arranged:
        flat = rows.double().flatten(1)
        gram = gram.to(flat.device) + flat @ flat.T
    leading: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -n:]
    return leading.T.reshape(n, n, n).transpose(1, 2) * math.sqrt(n)


def nearest_rule(table: Tensor, like: Algebra, sweeps: int = 100) -> Tensor:
    """Return what comes nearest to a structure tensor in the form in which an algebra stores its own.

    Factors are fitted by alternating least squares, from those that the algebra has (Carroll and Chang 1970, Harshman 1970).
    """
    if like.factors is None:
        return table
    fitted = [factor.detach().to(table) for factor in like.factors]
    for _ in range(sweeps):
        for side in range(3):
            one, other = (fitted[i] for i in range(3) if i != side)
            pairs = torch.einsum("ri,rj->rij", one, other).flatten(1)
            fitted[side] = torch.linalg.pinv(pairs.T) @ table.movedim(side, -1).flatten(0, 1)
    # What one factor of a product gains another may lose: all three get the same length.
    found = torch.stack(fitted)
    lengths = found.norm(dim=-1, keepdim=True)
    balanced: Tensor = found * (lengths.prod(0).pow(1 / 3) / lengths.clamp_min(1e-30))
    return balanced
