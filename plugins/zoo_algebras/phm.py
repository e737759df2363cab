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

    The layer's matrix is H = sum_i A_i (x) S_i (their Eq. 3-4), where A_i holds A[i, j, k] at row k, column j.

    Args:
        n: Dimension.
        rule: Where the product starts: ``random`` draws A[i, j, k] from N(0, 1 / n), with the energy ||A||^2 = n^2 of a signed
            table on average; the spec of any other algebra of the same n starts there.
        learned: Whether the product is trained; False keeps it as it started.
        shared: Whether the layers of a network share one product instead of having one each.
        rank: The number R of real multiplications, n^2 at most. The product is then learned in factors, A[i, j, k] =
            sum_r U[r, i] V[r, j] W[r, k], 3 R n weights: a layer multiplies R blocks instead of n^2. None for a free A.

    Raises:
        InputError: If n is not 1 to 64, the rank not 1 to n^2, or the named rule has another dimension or takes more
            multiplications.
    """
    if not 1 <= n <= 64:
        raise InputError(f"phm(n={n}): the dimension is 1 to 64")
    if rank is not None and not 1 <= rank <= n * n:
        raise InputError(f"phm(n={n}, rank={rank}): the rank is 1 to n^2 = {n * n}, with which every product can be computed")
    options: dict[str, Any] = {"learned": learned, "shared": shared}
    if rule == "random":
        draw = partial(random_rule, n) if rank is None else partial(random_factors, n, rank)
        return Algebra(draw, **options) if rank is None else FactoredAlgebra(draw, **options)
    start = named(rule)
    if start.n != n:
        raise InputError(f"phm(n={n}, rule={rule}): the algebra '{rule}' has n = {start.n}, so write n={start.n}")
    table = start.structure if rank is None else start_factors(start, rank)
    # What starts from a draw is stored with the weights, as a draw is: nothing else finds it again.
    begin = table if learned or start.known else partial(torch.clone, table.detach())
    return Algebra(begin, **options) if rank is None else FactoredAlgebra(begin, **options)


def random_rule(n: int) -> Tensor:
    """Draw A, [n, n, n], with the expected energy n^2."""
    return torch.randn(n, n, n) / math.sqrt(n)


def random_factors(n: int, rank: int) -> Tensor:
    """Draw U, V and W, [3, R, n], so that A has the expected energy n^2: n^3 entries of variance R s^6 with s the spread."""
    return torch.randn(3, rank, n) / math.pow(n * rank, 1 / 6)


def start_factors(start: Algebra, rank: int) -> Tensor:
    """Return U, V and W of a product, [3, R, n]; multiplications that it does not need start with W = 0."""
    known, n = start.factors or factorize(start.structure), start.n
    if rank < known.rank:
        raise InputError(f"phm(n={n}, rank={rank}): '{start.spec}' is computed with {known.rank} multiplications, not fewer")
    spare = torch.arange(rank - known.rank)
    eye = torch.eye(n).to(known.left)
    more = torch.stack([eye[spare % n], eye[spare // n % n], torch.zeros_like(eye[spare % n])])
    return torch.cat([torch.stack(known), more], 1)
