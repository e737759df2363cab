"""Compute the algebraic laws of a product from its structure tensor."""

from typing import NamedTuple

import torch
from torch import Tensor

from zoo.algebras.product import Algebra


class Laws(NamedTuple):
    """The laws of a product."""

    unital: bool
    commutative: bool
    associative: bool
    alternative: bool
    normed: bool


def unit(structure: Tensor, tol: float = 1e-6) -> Tensor | None:
    """Return the unit [n] of a structure tensor [n, n, n], u x = x u = x for every x up to ``tol``, or None."""
    a = structure.detach().double()
    n = a.shape[0]
    # One linear system: sum_i u_i A[i, j, k] = delta_jk and sum_j u_j A[i, j, k] = delta_ik.
    system = torch.cat([a.flatten(1).T, a.transpose(0, 1).flatten(1).T])
    target = torch.eye(n, dtype=a.dtype, device=a.device).flatten().repeat(2)
    u = torch.linalg.pinv(system, rtol=tol) @ target
    return u if (system @ u - target).abs().max() <= tol else None


def laws(algebra: Algebra, tol: float = 1e-6) -> Laws:
    """Compute the laws of a product: polynomial identities in its structure tensor.

    Normed means |x y| = |x| |y| in the Euclidean norm. ``tol`` bounds the largest violation, for entries of A of order one.
    """
    a = algebra.structure.detach().double().cpu()
    eye = torch.eye(algebra.n, dtype=a.dtype)

    def is_zero(t: Tensor) -> bool:
        return t.abs().max().item() <= tol

    associator = torch.einsum("ijm,mkl->ijkl", a, a) - torch.einsum("jkm,iml->ijkl", a, a)
    gram = torch.einsum("ijk,pqk->ijpq", a, a)
    return Laws(
        unital=unit(a, tol) is not None,
        commutative=is_zero(a - a.transpose(0, 1)),
        associative=is_zero(associator),
        alternative=is_zero(associator + associator.transpose(0, 1)) and is_zero(associator + associator.transpose(1, 2)),
        normed=is_zero(gram + gram.transpose(0, 2) - 2 * torch.einsum("ip,jq->ijpq", eye, eye)),
    )
