"""Pick a kernel from the shape of the problem alone."""

from enum import StrEnum

import torch


class Kernel(StrEnum):
    """The exact ways to apply a linear layer that exist so far."""

    BLOCK = "block"


def plan(
    rows: int,
    in_features: int,
    out_features: int,
    n: int,
    dtype: torch.dtype,
    device: torch.device,
    training: bool,
) -> Kernel:
    """Return the kernel for a product of [rows, in_features] with [out_features, in_features] over an algebra.

    A pure function, so that a choice can be tested, printed and argued with. One kernel exists so far: building the real matrix
    costs n / rows of the product itself and leaves the rest to the device's best matrix multiplication.
    """
    return Kernel.BLOCK
