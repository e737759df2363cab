"""The thin kernel: few rows, as while decoding, where reading the weight is what takes time; every component is read once."""

from torch import Tensor
from torch.nn import functional as F

from zoo.kernels.block import AxisLayout


def thin_linear(
    x: Tensor, w: Tensor, structure: Tensor, out: AxisLayout, inp: AxisLayout, bias: Tensor | None = None
) -> Tensor:
    r"""Multiply rows from the left by the weight: [..., in] to [..., out], for w [m, out elements, in elements].

    All m n products w_i x_j are one matrix product, [m out / n, in / n] by [in / n, n rows], which reads 1 / n of what the real
    matrix holds; y_k = sum_ij A[i, j, k] w_i x_j are sums of them. The structure A is [m, n, n].
    """
    m, n, _ = structure.shape
    rows = x.reshape(-1, inp.blocks, inp.size)
    if inp.size != n * inp.width:
        rows = F.pad(rows, (0, n * inp.width - inp.size))
    count = len(rows)
    parts = rows.view(count, inp.blocks, n, inp.width).transpose(1, 2).reshape(count * n, inp.elements)
    pairs = (w.view(m * out.elements, -1) @ parts.T).view(m, out.elements, count, n)
    sums = structure.permute(2, 0, 1).reshape(n, m * n) @ pairs.permute(2, 0, 3, 1).reshape(count, m * n, out.elements)
    y = sums.view(count, n, out.blocks, out.width).transpose(1, 2).reshape(count, out.blocks, n * out.width)
    y = y[..., : out.size].reshape(*x.shape[:-1], out.channels)
    return y if bias is None else y + bias
