"""Parameterised hypercomplex multiplication: the product itself is learned (Zhang et al. 2021)."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from zoo.algebras import Algebra, FactoredAlgebra
from zoo.algebras import algebra as named
from zoo.errors import InputError
from zoo.kernels.factors import factorize


def phm(n: int, rule: str = "random", learned: bool = True, shared: bool = False, rank: int | None = None) -> Algebra:
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

    Raises:
        InputError: If n or the rank is out of range, or the rule has another dimension or a higher rank.
    """
    if not 1 <= n <= 64:
        raise InputError(f"phm(n={n}): n must be from 1 to 64")
    if rank is not None and not 1 <= rank <= n * n:
        raise InputError(f"phm(n={n}, rank={rank}): rank must be from 1 to n^2 = {n * n}")
    options: dict[str, Any] = {"learned": learned, "shared": shared}
    if rule == "random":
        draw = partial(random_rule, n) if rank is None else partial(random_factors, n, rank)
        return Algebra(draw, **options) if rank is None else FactoredAlgebra(draw, **options)
    start = named(rule)
    if start.n != n:
        raise InputError(f"phm(n={n}, rule={rule}): '{rule}' has n = {start.n}: use n={start.n}")
    table = start.structure if rank is None else start_factors(start, rank)
    # A fixed product that starts from a random one must be saved with the weights: pass it as a draw.
    begin = table if learned or start.known else partial(torch.clone, table.detach())
    return Algebra(begin, **options) if rank is None else FactoredAlgebra(begin, **options)


def random_rule(n: int) -> Tensor:
    """Draw A, [n, n, n], with the expected energy n^2."""
    return torch.randn(n, n, n) / math.sqrt(n)


def random_factors(n: int, rank: int) -> Tensor:
    """Draw U, V and W, [3, R, n], with standard deviation s, so that A, of variance R s^6, has the expected energy n^2."""
    return torch.randn(3, rank, n) / math.pow(n * rank, 1 / 6)


def start_factors(start: Algebra, rank: int) -> Tensor:
    """Return U, V and W of a product, [3, R, n]; spare multiplications start with W = 0."""
    known, n = start.factors or factorize(start.structure), start.n
    if rank < known.rank:
        raise InputError(f"phm(n={n}, rank={rank}): '{start.spec}' needs a rank of at least {known.rank}")
    spare = torch.arange(rank - known.rank)
    eye = torch.eye(n).to(known.left)
    more = torch.stack([eye[spare % n], eye[spare // n % n], torch.zeros_like(eye[spare % n])])
    return torch.cat([torch.stack(known), more], 1)
