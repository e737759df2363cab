"""Dual numbers, the smallest example of an algebra with zero divisors."""

import torch

from zoo.algebras import Algebra


def dual() -> Algebra:
    """Dual numbers a + b eps with eps^2 = 0, n = 2.

    Components are (a, b), so (a + b eps)(c + d eps) = a c + (a d + b c) eps (Clifford 1873).

    Example:
        >>> dual()(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor([ 3., 10.])
    """
    structure = torch.zeros(2, 2, 2)  # [left, right, result]
    structure[0, 0, 0] = 1  # 1 * 1 = 1
    structure[0, 1, 1] = 1  # 1 * eps = eps
    structure[1, 0, 1] = 1  # eps * 1 = eps
    return Algebra(structure)
