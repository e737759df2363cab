"""Convolutions over any algebra, with torch's own arguments."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.kernels import Layout, real_matrix
from zoo.kernels.layout import layout
from zoo.layers.init import draw_components

Size = int | tuple[int, ...]


class _Conv(nn.Module):
    """What the convolutions share."""

    real: type[nn.Conv1d | nn.Conv2d]
    components: nn.Parameter

    def __init__(
        self,
        algebra: Algebra,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: str | Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        blocks: tuple[int, int] = (1, 1),
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise InputError(f"{groups} groups do not divide {in_channels} input and {out_channels} output channels")
        if groups > 1 and blocks != (1, 1):
            raise InputError(f"a convolution has groups or blocks, not both: groups={groups}, blocks={blocks}")
        options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "padding_mode": padding_mode}
        options |= {"groups": groups, "bias": False, "device": "meta"}
        torch_conv: Any = self.real(groups, groups, kernel_size, **options)  # type: ignore[arg-type]
        # Torch's own layer checks the arguments and knows how to pad and stride. It lives outside the module tree: its
        # weight is on the meta device, ours is passed in.
        self.__dict__["torch_conv"] = torch_conv
        self.kernel_size, self.stride, self.padding = torch_conv.kernel_size, torch_conv.stride, torch_conv.padding
        self.dilation, self.padding_mode, self.groups = torch_conv.dilation, torch_conv.padding_mode, groups
        self.in_channels, self.out_channels, self.init, self.gain = in_channels, out_channels, init, gain
        self.algebra = algebra.for_layer()
        n = algebra.n
        if groups == 1:
            self.inp, self.out = (layout(c, n, b) for c, b in zip((in_channels, out_channels), blocks, strict=True))
        else:
            in_width, out_width = (-(-size // (n * groups)) for size in (in_channels, out_channels))
            self.inp, self.out = Layout(n * in_width, n), Layout(n * out_width * groups, n, groups)
        self.components = nn.Parameter(torch.empty(algebra.m, self.out.elements, self.inp.elements, *self.kernel_size))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew and set the bias to zero."""
        draw_components(self.components, self.algebra.action, *self._fans(), init=self.init, gain=self.gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _fans(self) -> tuple[float, float]:
        """Average the elements that an output reads, and that an input feeds, times the kernel area; padding does not count."""
        axes = (self.in_channels, self.inp.elements), (self.out_channels, self.out.elements // self.groups)
        inp, out = (_shares(channels / self.algebra.n, width, self.groups) for channels, width in axes)
        used = [(i, o) for i, o in zip(inp, out, strict=True) if i and o]
        terms = math.prod(self.kernel_size) * sum(i * o for i, o in used)
        return terms / sum(o for _, o in used), terms / sum(i for i, _ in used)

    @property
    def weight(self) -> Tensor:
        """The real kernel torch convolves with, [out, in / groups, *kernel]; with groups, in the groups' own channel order."""
        return real_matrix(self.algebra.action, self.components, self.out, self.inp)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve: [..., in_channels, *space] to [..., out_channels, *space]."""
        convolve = self.__dict__["torch_conv"]._conv_forward
        if self.groups == 1 or self.algebra.n == 1:
            y: Tensor = convolve(x, self.weight, self.bias)
            return y
        # A group takes its share of every component; torch wants its channels next to each other.
        y = self._component_major(convolve(self._group_major(x), self.weight, None))
        return y if self.bias is None else y + self.bias.view(-1, *(1,) * len(self.kernel_size))

    def _group_major(self, x: Tensor) -> Tensor:
        """Reorder channels [n, width] to [groups, n, width / groups]; every component is filled up, so that none moves."""
        n, channel = self.algebra.n, -1 - len(self.kernel_size)
        width = -(-self.in_channels // n)
        x = _fill(x, channel, n * width - self.in_channels).unflatten(channel, (n, width))
        x = _fill(x, channel, self.groups * self.inp.width - width).unflatten(channel, (self.groups, -1))
        return x.transpose(channel - 2, channel - 1).flatten(channel - 2, channel)

    def _component_major(self, y: Tensor) -> Tensor:
        """Reorder channels [groups, n, width / groups] to [n, width] and cut off what was filled up."""
        n, channel = self.algebra.n, -1 - len(self.kernel_size)
        y = y.unflatten(channel, (self.groups, n, -1)).transpose(channel - 2, channel - 1).flatten(channel - 1, channel)
        y = y.narrow(channel, 0, -(-self.out_channels // n)).flatten(channel - 1, channel)
        return y.narrow(channel, 0, self.out_channels)

    def extra_repr(self) -> str:
        """Show the real sizes and the arguments, as torch does."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding}, dilation={self.dilation}, groups={self.groups}"
        return f"{text}, bias={self.bias is not None}"


def _shares(elements: float, width: int, groups: int) -> list[float]:
    """Count the elements of every group; those of the last groups are padding if the groups do not share them evenly."""
    return [min(max(elements - group * width, 0.0), width) for group in range(groups)]


def _fill(x: Tensor, axis: int, missing: int) -> Tensor:
    """Append zeros to an axis that is counted from the end."""
    return F.pad(x, (0, 0) * (-1 - axis) + (0, missing)) if missing else x


class Conv1d(_Conv):
    r"""Convolve over one axis, y = w * x + b over an algebra, with the arguments and shapes of `torch.nn.Conv1d`.

    Channels are component-major and counted as real channels; the kernel's entries are algebra elements that multiply from the
    left. A group takes its share of every component (its slice of whole elements), not a contiguous run of real channels. A
    channel count that n does not divide is padded inside to whole elements, and elements that the groups do not share evenly
    are padded at the end to a multiple of them; the padded weights are counted. The last groups may then hold padding alone:
    outputs of a group without inputs are the bias. Choose groups that divide the elements, C / n, of both sides.
    ``blocks``, ``init`` and ``gain`` mean what they mean for `zoo.layers.Linear`.

    Attributes:
        components: w, [n, groups * width_out, width_in, kernel], the parameter.
    """

    real = nn.Conv1d


class Conv2d(_Conv):
    r"""Convolve over two axes, y = w * x + b over an algebra, with the arguments and shapes of `torch.nn.Conv2d`.

    See `Conv1d` for the layout of channels and groups.

    Attributes:
        components: w, [n, groups * width_out, width_in, *kernel], the parameter.
    """

    real = nn.Conv2d
