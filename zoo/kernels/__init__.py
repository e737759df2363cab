"""One product, several exact ways to compute it, and the function that picks one.

Every kernel here computes what `block.real_matrix` defines; layers call `linear` and never learn which one ran.
"""

from torch import Tensor

from zoo.kernels.block import linear as block_linear
from zoo.kernels.block import real_matrix
from zoo.kernels.layout import Layout
from zoo.kernels.plan import Kernel, plan

__all__ = ["Kernel", "Layout", "linear", "plan", "real_matrix"]

_LINEAR = {Kernel.BLOCK: block_linear}


def linear(
    x: Tensor, structure: Tensor, components: Tensor, bias: Tensor | None, out: Layout, inp: Layout, training: bool
) -> Tensor:
    """Apply y = w x + b over an algebra with the kernel that `plan` picks: [..., in] to [..., out]."""
    kernel = plan(x.numel() // inp.channels, inp.channels, out.channels, inp.n, x.dtype, x.device, training)
    return _LINEAR[kernel](x, structure, components, bias, out, inp)
