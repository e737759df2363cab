"""Exact ways to multiply with fewer real multiplications than the table has entries."""

from functools import lru_cache

import torch
from torch import Tensor

from zoo.algebras import Algebra
from zoo.algebras import Factors as Factors


def factors_of(algebra: Algebra, like: Tensor) -> Factors | None:
    """Return the factors that layers compute with, [R, m], [R, n] and [R, n], or None if R is no less than the m n pairs.

    Those of a fixed product are constants in the dtype and on the device of ``like``; callers must not write to them.
    """
    if not algebra.known:
        learned = algebra.factors
        return None if learned is None else _in_subspace(learned, algebra)
    constant: Factors | None = algebra.fixed("factors", like, lambda: _fixed_factors(algebra))
    return constant


def _fixed_factors(algebra: Algebra) -> Factors | None:
    table = algebra.table(torch.empty(0, dtype=torch.float64, device="cpu"))
    factors = factorize(table)
    return _in_subspace(factors, algebra) if factors.rank < algebra.m * algebra.n else None


def _in_subspace(factors: Factors, algebra: Algebra) -> Factors:
    if algebra.left is None:
        return factors
    return factors._replace(left=factors.left @ algebra.left.to(factors.left).T)


def factorize(structure: Tensor) -> Factors:
    """Decompose a structure tensor [n, n, n] exactly, with as few multiplications as we know how; in float64.

    Example:
        >>> complex_numbers = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])
        >>> factorize(complex_numbers).rank
        3
    """
    a = structure.detach().double().cpu().contiguous()
    return _factorize(len(a), a.numpy().tobytes())


@lru_cache(maxsize=64)
def _factorize(n: int, entries: bytes) -> Factors:
    a = torch.frombuffer(bytearray(entries), dtype=torch.float64).view(n, n, n)
    factors = min([f for f in (pair_factors(a), hadamard_factors(a)) if f is not None], key=lambda f: f.rank)
    if not is_exact(factors, a):
        raise ArithmeticError("the factors do not rebuild the structure tensor exactly")
    return factors


def is_exact(factors: Factors, structure: Tensor) -> bool:
    """Tell whether the factors rebuild the table without any rounding.

    Integer tables are checked in 64-bit integers (`hadamard_factors` carries no denominator but n, a power of two); a table
    of other numbers decomposes into pairs, which are copies of its entries and round nothing.
    """
    n = structure.shape[0]
    if not torch.equal(structure, structure.round()):
        return torch.equal(factors.reconstruct(), structure)
    whole = Factors(factors.left, factors.right, factors.result * n)
    if not all(torch.equal(f, f.round()) for f in whole):
        return False
    return torch.equal(Factors(*(f.long() for f in whole)).reconstruct(), n * structure.long())


def pair_factors(structure: Tensor) -> Factors:
    """Spend one multiplication on every pair e_i e_j that is not zero: at most n^2, and exact for any table."""
    left, right = structure.abs().sum(-1).nonzero(as_tuple=True)
    eye = torch.eye(structure.shape[0], dtype=structure.dtype)
    return Factors(eye[left], eye[right], structure[left, right])


def hadamard_factors(structure: Tensor) -> Factors | None:
    r"""Factor a signed table over Z_2^m, e_i e_j = s(i, j) e_{i + j}, or return None if it is not one.

    Without its signs the product is a convolution over Z_2^m, which the Hadamard matrix turns into n products. Result k then
    has the sign of its majority; each of its pairs with the other sign is mended by one more product. Complex numbers need 3
    products of 4, quaternions 8 of 16 (Howell and Lafon 1975), octonions 30 of 64.
    """
    n = structure.shape[0]
    label = elementary_labels(structure)
    if label is None:
        return None
    order = label.argsort()
    table = structure[order][:, order][:, :, order]
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    signs = table[i, j, i ^ j]
    hadamard = torch.ones(1, 1, dtype=table.dtype)
    while hadamard.shape[0] < n:
        hadamard = torch.kron(hadamard, torch.tensor([[1, 1], [1, -1]], dtype=table.dtype))
    majority = torch.zeros(n, dtype=table.dtype).index_add(0, (i ^ j).flatten(), signs.flatten()).sign()
    majority[majority == 0] = 1
    minority = (signs != majority[i ^ j]).nonzero()
    k = minority[:, 0] ^ minority[:, 1]
    eye = torch.eye(n, dtype=table.dtype)
    factors = Factors(
        left=torch.cat([hadamard, eye[minority[:, 0]]]),
        right=torch.cat([hadamard, eye[minority[:, 1]]]),
        result=torch.cat([hadamard * majority / n, -2 * majority[k, None] * eye[k]]),
    )
    return Factors(*(f[:, label] for f in factors))


def elementary_labels(structure: Tensor) -> Tensor | None:
    """Number the basis by Z_2^m so that |A| is its addition table: label(i) xor label(j) = label(k), [n]; or None.

    The order of a basis is its author's choice (1, e1, e2, e12 or graded), the group behind it is not.
    """
    n = structure.shape[0]
    product = structure.abs().argmax(-1)
    is_signed_table = torch.equal(structure.abs().sort(-1).values, torch.eye(n)[-1].to(structure).expand(n, n, n))
    identity = (product == torch.arange(n)).all(-1).nonzero().flatten()
    if n & (n - 1) or not is_signed_table or len(identity) != 1:
        return None
    label = torch.full((n,), -1)
    label[identity] = 0
    while (label < 0).any():
        known = (label >= 0).nonzero().flatten()
        new = product[(label < 0).nonzero()[0, 0], known]
        if (label[new] >= 0).any() or new.unique().numel() != known.numel():
            return None
        label[new] = label[known] + known.numel()
    grid = label[:, None] ^ label[None, :]
    return label if torch.equal(label[product], grid) else None
