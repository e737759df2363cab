"""Slow reference implementations, one element at a time and independent of the kernels."""

import torch
from torch import Tensor
from torch.nn import functional as F


def multiply(structure: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Multiply an element x, [n], by elements y, [..., n]: (x y)_k = sum_ij A[i, j, k] x_i y_j."""
    return torch.einsum("ijk,i,...j->...k", structure, x, y)


def elements(x: Tensor, n: int, blocks: int) -> list[list[Tensor]]:
    """Split channels [..., C] into blocks and each block into zero-padded algebra elements, [..., n]."""
    width = -(-(x.shape[-1] // blocks) // n)
    padded = (F.pad(block, (0, n * width - block.shape[-1])) for block in x.chunk(blocks, -1))
    return [[block[..., c::width] for c in range(width)] for block in padded]


def linear(structure: Tensor, w: Tensor, x: Tensor, out_features: int, blocks: tuple[int, int] = (1, 1)) -> Tensor:
    """Compute w x, [..., in] to [..., out], one product of two elements at a time; w is [m, out elements, in elements].

    The structure is the action of an algebra, [m, n, n], with m = n unless weights lie in a subspace.
    """
    n, size = structure.shape[1], out_features // blocks[1]
    flat = [element for block in elements(x, n, blocks[0]) for element in block]
    rows = [sum(multiply(structure, w[:, o, c], e) for c, e in enumerate(flat)) for o in range(w.shape[1])]
    width = w.shape[1] // blocks[1]
    outputs = [torch.stack(rows[b * width : (b + 1) * width], -1).flatten(-2)[..., :size] for b in range(blocks[1])]  # type: ignore[arg-type]
    return torch.cat(outputs, -1)


def kernel(structure: Tensor, w: Tensor, out_channels: int, in_channels: int, groups: int = 1) -> Tensor:
    """Return the real kernel [out, in, *kernel] of a convolution, one tap at a time; w is [m, groups * out, in, *kernel].

    Groups consist of contiguous whole elements; the weights between groups are zero.
    """
    m, rows, width = w.shape[:3]
    n, whole = structure.shape[1], w.new_zeros(m, rows, groups * width, *w.shape[3:])
    for group, share in enumerate(w.chunk(groups, 1)):
        first, start = group * share.shape[1], group * width
        whole[:, first : first + share.shape[1], start : start + width] = share
    whole = whole[:, : -(-out_channels // n), : -(-in_channels // n)]
    inputs = torch.eye(in_channels, dtype=w.dtype)
    taps = [linear(structure, tap, inputs, out_channels).T for tap in whole.flatten(3).unbind(-1)]
    real: Tensor = torch.stack(taps, -1).unflatten(-1, w.shape[3:])
    return real
