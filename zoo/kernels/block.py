"""The definition every kernel is tested against: left multiplication by the weight, written as one real matrix."""

import torch
from torch import Tensor

from zoo.kernels.axis_layout import AxisLayout


def real_matrix(structure: Tensor, components: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Write left multiplication by w as one real matrix.

    With e_i e_j = sum_k A[i, j, k] e_k, the block at row k, column j is

        M[k, j] = sum_i A[i, j, k] w[i]

    in every pair of an output and an input block of the two layouts.

    Args:
        structure: A, [m, n, n]: m = n, or less if the weights lie in a subspace (`zoo.algebras.Algebra.action`).
        components: w, [m, out.elements, in.elements, *kernel].
        out: AxisLayout of the output channels.
        inp: AxisLayout of the input channels.

    Returns:
        The real weight, [out.channels, in.channels, *kernel], as torch expects it.

    Example:
        >>> complex_numbers = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])
        >>> one_plus_two_i = torch.tensor([[[1.0]], [[2.0]]])
        >>> real_matrix(complex_numbers, one_plus_two_i, AxisLayout(2, n=2), AxisLayout(2, n=2))
        tensor([[ 1., -2.],
                [ 2.,  1.]])
    """
    n, kernel = out.n, components.shape[3:]
    w = components.reshape(components.shape[0], out.blocks, out.width, inp.blocks, inp.width, -1)
    m = torch.einsum("ijk,iaobcs->akobjcs", structure, w)
    m = m.reshape(out.blocks, n * out.width, inp.blocks, n * inp.width, -1)[:, : out.size, :, : inp.size]
    return m.reshape(out.channels, inp.channels, *kernel)
