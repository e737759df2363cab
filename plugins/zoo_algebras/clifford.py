"""Clifford algebras Cl(p, q), also called geometric algebras."""

import torch

from zoo.algebras import Algebra
from zoo.errors import InputError


def clifford(p: int, q: int, r: int = 0) -> Algebra:
    r"""Clifford algebra of p squares +1, q squares -1 and r squares 0; n = 2^(p + q + r).

    The generators have this order, and basis blade i is the product, in ascending order, of the generators whose bits are set
    in i; so e_a e_b = sign e_(a xor b), where the sign counts the swaps that sort the product and the squares that cancel
    (Dorst, Fontijne and Mann 2007, section 19.2). Cl(0, 1) is the complex numbers and Cl(0, 2) the quaternions.

    Raises:
        InputError: If a count is negative or n would exceed 64.
    """
    if min(p, q, r) < 0 or p + q + r > 6:
        raise InputError(f"clifford(p={p}, q={q}, r={r}): p, q and r must be at least 0 and p + q + r at most 6 (n = 64)")
    squares = [1] * p + [-1] * q + [0] * r
    n = 1 << len(squares)
    structure = torch.zeros(n, n, n)
    for a in range(n):
        for b in range(n):
            structure[a, b, a ^ b] = blade_sign(a, b, squares)
    return Algebra(structure)


def blade_sign(a: int, b: int, squares: list[int]) -> int:
    """Return the sign (or zero) of the product of two blades, given as bit masks."""
    swaps = sum((a >> (i + 1)).bit_count() for i in range(len(squares)) if b >> i & 1)
    sign = -1 if swaps % 2 else 1
    for i, square in enumerate(squares):
        sign *= square if a >> i & b >> i & 1 else 1
    return sign
