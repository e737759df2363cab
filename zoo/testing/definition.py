"""Slow reference implementations, one element at a time and independent of the kernels."""

from itertools import product as cartesian
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


def multiply_elements(structure: Tensor, x: Tensor, y: Tensor) -> list[float]:
    """Multiply two elements [n] in pure Python: (x y)_k = sum_ij A[i, j, k] x_i y_j."""
    a, left, right = (np.asarray(t.detach().double()) for t in (structure, x, y))
    result = [0.0] * len(left)
    for i, j, k in np.argwhere(a):
        result[k] += float(a[i, j, k]) * float(left[i]) * float(right[j])
    return result


def multiply(structure: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Multiply an element x, [n], by elements y, [..., n]; differentiable."""
    return torch.einsum("ijk,i,...j->...k", structure, x, y)


def elements(x: Tensor, n: int, blocks: int) -> list[list[Tensor]]:
    """Split channels [..., C] into blocks and each block into zero-padded algebra elements, [..., n]."""
    width = -(-(x.shape[-1] // blocks) // n)
    padded = (F.pad(block, (0, n * width - block.shape[-1])) for block in x.chunk(blocks, -1))
    return [[block[..., c::width] for c in range(width)] for block in padded]


def linear(structure: Tensor, w: Tensor, x: Tensor, out_features: int, blocks: tuple[int, int] = (1, 1)) -> Tensor:
    """Compute w x, [..., in] to [..., out], one product of two elements at a time; w is [m, out elements, in elements].

    The structure is the `action` of an algebra, [m, n, n], with m = n unless weights lie in a subspace.
    """
    n, size = structure.shape[1], out_features // blocks[1]
    flat = [element for block in elements(x, n, blocks[0]) for element in block]
    rows = [sum(multiply(structure, w[:, o, c], e) for c, e in enumerate(flat)) for o in range(w.shape[1])]
    width = w.shape[1] // blocks[1]
    outputs = [torch.stack(rows[b * width : (b + 1) * width], -1).flatten(-2)[..., :size] for b in range(blocks[1])]  # type: ignore[arg-type]
    return torch.cat(outputs, -1)


def without_groups(w: Tensor, n: int, groups: int, out_channels: int, in_channels: int) -> Tensor:
    """Expand grouped weights [m, groups * out, in, *kernel] to dense ones [m, out elements, in elements, *kernel]."""
    m, rows, width = w.shape[:3]
    whole = w.new_zeros(m, rows, groups * width, *w.shape[3:])
    for group, share in enumerate(w.chunk(groups, 1)):
        first, start = group * share.shape[1], group * width
        whole[:, first : first + share.shape[1], start : start + width] = share
    return whole[:, : -(-out_channels // n), : -(-in_channels // n)]


def convolve(structure: Tensor, w: Tensor, x: Tensor, out_channels: int, stride: int, dilation: int, groups: int = 1) -> Tensor:
    """Convolve padded features [B, C, *space] with w, [m, groups * out elements, in elements, *kernel], as a sum of taps.

    Groups consist of contiguous whole elements; the weights between groups are zero.
    """
    w, kernel = without_groups(w, structure.shape[1], groups, out_channels, x.shape[1]), w.shape[3:]
    reach = [(s - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(x.shape[2:], kernel, strict=True)]
    total = torch.zeros(())
    for tap in cartesian(*(range(k) for k in kernel)):
        index: tuple[Any, ...] = tap
        starts = [t * dilation for t in tap]
        window: tuple[Any, ...] = tuple(slice(t, t + stride * (r - 1) + 1, stride) for t, r in zip(starts, reach, strict=True))
        total = total + linear(structure, w[:, :, :, *index], x[:, :, *window].movedim(1, -1), out_channels)
    return total.movedim(-1, 1)
