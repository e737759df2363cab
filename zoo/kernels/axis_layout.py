"""How algebra elements lie on a channel axis."""

from typing import NamedTuple

from zoo.errors import InputError


class AxisLayout(NamedTuple):
    """A channel axis that holds ``blocks`` vectors side by side, each of them component-major by itself.

    One block of C / blocks real channels is [n, width] with width = ceil(C / (blocks n)), cut to its first C / blocks entries
    if n does not divide it: the missing channels are zeros that are never computed, but their weights exist and are counted.

    Args:
        channels: C, real channels.
        n: Dimension of the algebra.
        blocks: Vectors side by side: 1 in a residual stream, 4 for gates, 3 * heads for a fused qkv.

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
    """Return a checked `AxisLayout`.

    Raises:
        InputError: If there is no channel, or the blocks do not share the channels evenly.
    """
    if channels < 1 or blocks < 1 or channels % blocks:
        raise InputError(f"{channels} channels do not split into {blocks} equal blocks of at least one channel")
    return AxisLayout(channels, n, blocks)
