"""The built-in algebras: Cayley-Dickson and Clifford algebras, learned products, complex numbers with order embedding."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zoo.algebras import Algebra, FactoredAlgebra, factorize
from zoo.algebras import algebra as named
from zoo.errors import InputError, check_choice


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


def clifford(p: int, q: int, r: int = 0) -> Algebra:
    r"""Clifford algebra of p squares +1, q squares -1 and r squares 0; n = 2^(p + q + r).

    The generators have this order, and basis blade i is the product, in ascending order, of the generators whose bits are set
    in i; so e_a e_b = sign e_(a xor b), where the sign counts the swaps that sort the product and the squares that cancel
    (Dorst, Fontijne and Mann 2007, section 19.2). Cl(0, 1) is the complex numbers and Cl(0, 2) the quaternions.
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


def phm(
    n: int,
    rule: str = "random",
    learned: bool = True,
    shared: bool = False,
    rank: int | None = None,
    terms: int | None = None,
) -> Algebra:
    r"""Learned product on R^n (PHM, Zhang et al. 2021): kd / n + n^3 weights for a d -> k layer.

    The matrix of a layer is H = sum_i A_i (x) S_i (their Eq. 3-4), where A_i has the entry A[i, j, k] at row k, column j.

    Args:
        n: Dimension.
        rule: Initial product: ``random`` draws A[i, j, k] from N(0, 1 / n), with the expected energy ||A||^2 = n^2 of a signed
            multiplication table; or the spec of another algebra of dimension n.
        learned: Whether the product is trained.
        shared: Whether the layers of a network share one product.
        rank: Number R of real multiplications, at most n^2. The product is then given by factors, A[i, j, k] =
            sum_r U[r, i] V[r, j] W[r, k], with 3 R n weights, and a layer multiplies R blocks instead of n^2. None for any A.
        terms: Number of matrices S_i, from 1 to n; by default n. One is a Kronecker product.
    """
    if not 1 <= n <= 64:
        raise InputError(f"phm(n={n}): n must be from 1 to 64")
    if rank is not None and not 1 <= rank <= n * n:
        raise InputError(f"phm(n={n}, rank={rank}): rank must be from 1 to n^2 = {n * n}")
    if terms is not None and not 1 <= terms <= n:
        raise InputError(f"phm(n={n}, terms={terms}): terms must be from 1 to n = {n}")
    options: dict[str, Any] = {"learned": learned, "shared": shared, "left": None if terms is None else torch.eye(n)[:terms]}
    build = Algebra if rank is None else FactoredAlgebra
    if rule == "random":
        return build(partial(random_rule, n, rank), **options)
    start = named(rule)
    if start.n != n:
        raise InputError(f"phm(n={n}, rule={rule}): '{rule}' has n = {start.n}: use n={start.n}")
    table = start.structure if rank is None else start_factors(start, rank)
    # A fixed product that starts from a random one must be saved with the weights: pass it as a draw.
    return build(table if learned or start.kind == "fixed" else partial(torch.clone, table.detach()), **options)


def random_rule(n: int, rank: int | None) -> Tensor:
    """Draw A, [n, n, n], or U, V and W, [3, R, n], so that A, for factors of variance R s^6, has the expected energy n^2."""
    return torch.randn(n, n, n) / math.sqrt(n) if rank is None else torch.randn(3, rank, n) / math.pow(n * rank, 1 / 6)


def start_factors(start: Algebra, rank: int) -> Tensor:
    """Return U, V and W of a product, [3, R, n]; spare multiplications start with W = 0."""
    known, n = start.factors if isinstance(start, FactoredAlgebra) else factorize(start.structure), start.n
    if rank < known.rank:
        raise InputError(f"phm(n={n}, rank={rank}): '{start.spec}' needs a rank of at least {known.rank}")
    spare = torch.arange(rank - known.rank)
    eye = torch.eye(n).to(known.left)
    more = torch.stack([eye[spare % n], eye[spare // n % n], torch.zeros_like(eye[spare % n])])
    return torch.cat([torch.stack(known), more], 1)


def complex_order(weights: str = "separate") -> Algebra:
    r"""Complex numbers with order embedding, Hermitian attention and modulus readout, n = 2.

    In the networks of Wang et al. (2020, App. B) layers multiply by W = A + iB (Eq. 10), attention scores are |q k*| (Eq. 14),
    and the outputs are moduli of complex numbers. Embedding, score and readout are defaults of this algebra; each can be
    overridden, and used with any other algebra.

    Args:
        weights: ``separate`` learns A and B; with ``shared`` A = B (App. B and Table 4), so that every weight is a multiple of
            1 + i and a layer has half as many. Biases are real in both cases.
    """
    check_choice("weights", weights, ("separate", "shared"))
    return Algebra(
        cayley_dickson(1).structure,
        left=torch.ones(1, 2) if weights == "shared" else None,
        defaults={"embedding": "complex_order", "score": "hermitian", "readout": "modulus"},
    )
