"""Parameterised hypercomplex multiplication: the product itself is learned (Zhang et al. 2021)."""

import math
from functools import partial

import torch
from torch import Tensor

from zoo.algebras import Algebra
from zoo.algebras import algebra as named
from zoo.errors import InputError


def phm(n: int, rule: str = "random", learned: bool = True, shared: bool = False) -> Algebra:
    r"""Learned product on R^n (PHM, Zhang et al. 2021): kd / n + n^3 weights for a d -> k layer.

    The layer's matrix is H = sum_i A_i (x) S_i (their Eq. 3-4), where A_i holds A[i, j, k] at row k, column j.

    Args:
        n: Dimension.
        rule: Where the product starts: ``random`` draws A[i, j, k] from N(0, 1 / n), with the energy ||A||^2 = n^2 of a signed
            table on average; the spec of any other algebra of the same n starts there.
        learned: Whether the product is trained; False keeps it as it started.
        shared: Whether the layers of a network share one product instead of having one each.

    Raises:
        InputError: If n is not 1 to 64, or the named rule has another dimension.
    """
    if not 1 <= n <= 64:
        raise InputError(f"phm(n={n}): the dimension is 1 to 64")
    if rule == "random":
        return Algebra(partial(random_rule, n), learned=learned, shared=shared)
    start = named(rule)
    if start.n != n:
        raise InputError(f"phm(n={n}, rule={rule}): the algebra '{rule}' has n = {start.n}, so write n={start.n}")
    return Algebra(start.structure, learned=learned, shared=shared)


def random_rule(n: int) -> Tensor:
    """Draw A, [n, n, n], with the expected energy n^2."""
    return torch.randn(n, n, n) / math.sqrt(n)
