"""Compute laws, unit, conjugate, factors and the multiplication table of a product from its structure tensor."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Factors(NamedTuple):
    r"""A bilinear decomposition of a product into R real multiplications.

        A[i, j, k] = sum_r left[r, i] right[r, j] result[r, k]

    so that x y = result^T ((left x) * (right y)). All three are [R, n].
    """

    left: Tensor
    right: Tensor
    result: Tensor

    @property
    def rank(self) -> int:
        """Number R of real multiplications."""
        return self.left.shape[0]

    def reconstruct(self) -> Tensor:
        """Return the structure tensor, [n, n, n]."""
        # Not by a matrix product, which may round on a GPU.
        return (self.left[:, :, None, None] * self.right[:, None, :, None] * self.result[:, None, None]).sum(0)


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


def laws_of(structure: Tensor, tol: float = 1e-6) -> Laws:
    """Compute the laws of a structure tensor, see `zoo.laws`."""
    a = structure.detach().double().cpu()
    eye = torch.eye(len(a), dtype=a.dtype)

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


class Quadratic(NamedTuple):
    r"""The conjugate and the norm form of a quadratic algebra, in which x^2 - t(x) x + N(x) 1 = 0 for every x.

    The conjugate is x* = t(x) 1 - x, so that x x* = N(x) 1 (Schafer 1966, An Introduction to Nonassociative Algebras, section
    III.4). Complex numbers, quaternions, octonions, their split forms and dual numbers are quadratic.

    Attributes:
        conjugate: Matrix [n, n] with x* = x @ conjugate.
        form: Symmetric matrix [n, n] with N(x) = x @ form @ x.
    """

    conjugate: Tensor
    form: Tensor


def quadratic(structure: Tensor, tol: float = 1e-6) -> Quadratic | None:
    """Return the conjugate and the norm form of a structure tensor [n, n, n], or None if the algebra is not quadratic."""
    a = structure.detach().double()
    n, one = len(a), unit(a)
    if one is None:
        return None
    trace = 2 / n * a.diagonal(dim1=1, dim2=2).sum(-1)  # t(x) = 2 / n times the trace of left multiplication by x
    eye = torch.eye(n).to(a)
    mixed = torch.einsum("i,jk->ijk", trace, eye)
    rest = (a - mixed + (a - mixed).transpose(0, 1)) / 2  # x^2 - t(x) x, which must be a multiple of the unit
    form = -(rest @ one) / (one @ one)
    if (rest + form[..., None] * one).abs().max() > tol:
        return None
    return Quadratic(torch.outer(trace, one) - eye, form)


def table_text(structure: Tensor) -> str:
    """Format the multiplication table of a structure tensor [n, n, n]; the row is the left factor."""
    one = torch.eye(len(structure))[0].to(structure)
    is_unit = torch.equal(structure[0], torch.eye(len(structure)).to(structure)) and torch.equal(structure[:, 0], structure[0])
    names = ["1" if i == 0 and is_unit else f"e{i}" for i in range(len(one))]
    rows = [["", *names], *([names[i], *(_sum(entry, names) for entry in row)] for i, row in enumerate(structure.tolist()))]
    width = max(len(text) for row in rows for text in row)
    return "\n".join("  ".join(text.rjust(width) for text in row) for row in rows)


def _sum(coefficients: list[float], names: list[str]) -> str:
    """Format a linear combination of basis elements, such as ``-e2`` or ``0.5 e1 - e3``."""
    text = ""
    for value, name in zip(coefficients, names, strict=True):
        if value:
            size = "" if abs(value) == 1 else f"{abs(value):.3g}" + ("" if name == "1" else " ")
            sign = ("-" if value < 0 else "") if not text else (" - " if value < 0 else " + ")
            text += sign + (size if size and name == "1" else size + name)
    return text or "0"


def factorize(structure: Tensor) -> Factors:
    """Decompose a structure tensor [n, n, n] exactly, in float64, with the fewest multiplications of the known methods.

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
    return min([f for f in (pair_factors(a), hadamard_factors(a)) if f is not None], key=lambda f: f.rank)


def pair_factors(structure: Tensor) -> Factors:
    """Return one multiplication for every nonzero pair e_i e_j: at most n^2, and exact for any structure tensor."""
    left, right = structure.abs().sum(-1).nonzero(as_tuple=True)
    eye = torch.eye(structure.shape[0], dtype=structure.dtype)
    return Factors(eye[left], eye[right], structure[left, right])


def hadamard_factors(structure: Tensor) -> Factors | None:
    r"""Factor a signed multiplication table of Z_2^m, e_i e_j = s(i, j) e_{i + j}; return None for other tables.

    Without signs the product is a convolution over Z_2^m, which the Hadamard matrix diagonalises into n products. Component k
    then gets the sign of the majority of its pairs, and each pair of the other sign takes one more product as a correction.
    Complex numbers need 3 products of 4, quaternions 8 of 16 (Howell and Lafon 1975), octonions 30 of 64.
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
    """Label the basis by Z_2^m so that |A| is its addition table, label(i) xor label(j) = label(k), [n]; or return None.

    The labels make `hadamard_factors` independent of the order of the basis.
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
