"""The Cayley-Dickson algebras: reals, complex numbers, quaternions, octonions, sedenions."""

import torch
from torch import Tensor

from zoo.algebras import Algebra


def double(structure: Tensor) -> Tensor:
    r"""Apply the Cayley-Dickson construction to a structure tensor [n, n, n], giving [2n, 2n, 2n].

        (a, b)(c, d) = (a c - d* b, d a + b c*)

    with the conjugate x* = (x_0, -x_1, ...) (Baez 2002, The Octonions, section 2.2). The second half of the basis is (0, e_i).
    """
    n = structure.shape[0]
    star = torch.ones(n).to(structure)
    star[1:] = -1
    doubled = structure.new_zeros(2 * n, 2 * n, 2 * n)
    doubled[:n, :n, :n] = structure
    doubled[n:, n:, :n] = -(structure * star[:, None, None]).transpose(0, 1)
    doubled[:n, n:, n:] = structure.transpose(0, 1)
    doubled[n:, :n, n:] = structure * star[None, :, None]
    return doubled


def cayley_dickson(doublings: int) -> Algebra:
    """Return the Cayley-Dickson algebra of dimension 2^doublings."""
    structure = torch.ones(1, 1, 1)
    for _ in range(doublings):
        structure = double(structure)
    return Algebra(structure)


def real() -> Algebra:
    """Real numbers, n = 1: an ordinary network."""
    return cayley_dickson(0)


def complex() -> Algebra:
    """Complex numbers, n = 2."""
    return cayley_dickson(1)


def quaternion() -> Algebra:
    """Hamilton's quaternions, n = 4: associative, not commutative."""
    return cayley_dickson(2)


def octonion() -> Algebra:
    """Octonions, n = 8: alternative and normed, not associative."""
    return cayley_dickson(3)


def sedenion() -> Algebra:
    """Sedenions, n = 16: with zero divisors, neither alternative nor normed."""
    return cayley_dickson(4)
