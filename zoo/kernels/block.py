"""The definition every kernel is tested against: left multiplication by the weight as one real matrix, and its channel axes."""

from typing import NamedTuple

from torch import Tensor

from zoo.errors import InputError


class AxisLayout(NamedTuple):
    """A channel axis that holds ``blocks`` vectors side by side, each of them component-major by itself.

    One block of C / blocks real channels is [n, width] with width = ceil(C / (blocks n)), cut to its first C / blocks entries
    if n does not divide it: the missing channels are zeros that are never computed, but their weights exist and are counted.

    There is 1 block in a residual stream, 4 for gates, 3 * heads for a fused qkv.

    Example:
        >>> AxisLayout(10, n=4).width
        3
    """

    channels: int
    n: int
    blocks: int = 1

    @property
    def size(self) -> int:
        """Real channels of one block."""
        return self.channels // self.blocks

    @property
    def width(self) -> int:
        """Algebra elements of one block, the last ones padded if need be."""
        return -(-self.size // self.n)

    @property
    def elements(self) -> int:
        """Algebra elements of the whole axis: the size of this axis in the component weights."""
        return self.blocks * self.width


def axis_layout(channels: int, n: int, blocks: int = 1) -> AxisLayout:
    """Return an `AxisLayout`, or raise `InputError` if there is no channel or the blocks do not share the channels evenly."""
    if channels < 1 or blocks < 1 or channels % blocks:
        raise InputError(f"{channels} channels do not split into {blocks} equal blocks of at least one channel")
    return AxisLayout(channels, n, blocks)


def real_matrix(structure: Tensor, components: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Write left multiplication by w as one real matrix.

    With e_i e_j = sum_k A[i, j, k] e_k, the block at row k, column j is

        M[k, j] = sum_i A[i, j, k] w[i]

    in every pair of an output and an input block of the two layouts.

    The structure A is [m, n, n], with m = n or less if the weights lie in a subspace; w is [m, out.elements, in.elements,
    *kernel], and the real matrix [out.channels, in.channels, *kernel], as torch expects it.

    Example:
        >>> complex_numbers = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]])
        >>> one_plus_two_i = torch.tensor([[[1.0]], [[2.0]]])
        >>> real_matrix(complex_numbers, one_plus_two_i, AxisLayout(2, n=2), AxisLayout(2, n=2))
        tensor([[ 1., -2.],
                [ 2.,  1.]])
    """
    n, m, kernel = out.n, len(components), components.shape[3:]
    # One product of small matrices and one copy: einsum makes more copies on the way, forward and backward.
    parts = structure.permute(2, 1, 0).reshape(n * n, m) @ components.reshape(m, -1)
    parts = parts.view(n, n, out.blocks, out.width, inp.blocks, inp.width, -1)
    matrix = parts.permute(2, 0, 3, 4, 1, 5, 6).reshape(out.blocks, n * out.width, inp.blocks, n * inp.width, -1)
    return matrix[:, : out.size, :, : inp.size].reshape(out.channels, inp.channels, *kernel)
