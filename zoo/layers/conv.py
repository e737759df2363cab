"""Convolutions over any algebra, with the arguments of torch's convolutions."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.kernels import Geometry
from zoo.kernels.internals import CONV_FORWARD
from zoo.layers.kernel_choice import apply_kernel
from zoo.layers.linear import ComputedWeight
from zoo.layers.weight import Weight

Size = int | tuple[int, ...]


class _Conv(ComputedWeight):
    real: type[nn.Conv1d | nn.Conv2d]

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
        options: Any = {"stride": stride, "padding": padding, "dilation": dilation, "padding_mode": padding_mode}
        torch_conv: Any = self.real(1, 1, kernel_size, bias=False, device="meta", **options)  # type: ignore[arg-type]
        torch_conv.groups = groups
        # Torch's layer checks the arguments and implements padding. It is not a submodule: its weight is on the meta device,
        # and ours is passed to its forward.
        self.__dict__["torch_conv"] = torch_conv
        self.kernel_size, self.stride, self.padding = torch_conv.kernel_size, torch_conv.stride, torch_conv.padding
        self.dilation, self.padding_mode, self.groups = torch_conv.dilation, torch_conv.padding_mode, groups
        self.in_channels, self.out_channels = in_channels, out_channels
        layout: Any = {"groups": groups, "blocks": blocks, "init": init, "gain": gain}
        self.weight_module = Weight(algebra, in_channels, out_channels, self.kernel_size, **layout)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Convolve: [..., in_channels, *space] to [..., out_channels, *space]."""
        weight = self.weight_module
        torch_convolve = getattr(self.__dict__["torch_conv"], CONV_FORWARD)
        if self.groups == 1 or self.algebra.n == 1:
            # Kernels support only zero padding of the same width on both sides.
            y: Tensor | None = None
            if self.padding_mode == "zeros" and not isinstance(self.padding, str):
                y = apply_kernel(weight, x, self.bias, Geometry(self.stride, self.padding, self.dilation))
            convolved: Tensor = torch_convolve(x, weight(), self.bias) if y is None else y
            return convolved
        # The channels of a group are spread over all components, but contiguous for torch.
        grouped = self._component_major(torch_convolve(self._group_major(x), weight(), None))
        return grouped if self.bias is None else grouped + self.bias.to(grouped.dtype).view(-1, *(1,) * len(self.kernel_size))

    def dense_weight(self) -> Tensor:
        """Return the equivalent kernel without groups, [out, in, *kernel], which is zero between groups."""
        weight: Tensor = self.weight_module()
        shape = -1, *(1,) * len(self.kernel_size)
        # Reorder channel numbers like channels; inputs count from 1, and 0 marks padding.
        channels = torch.arange(1, self.in_channels + 1, device=weight.device).view(shape)
        rows = torch.arange(len(weight), device=weight.device).view(shape)
        inp, out = self._group_major(channels).view(self.groups, -1), self._component_major(rows).flatten()
        inp = inp.repeat_interleave(len(weight) // self.groups, 0).view(*weight.shape[:2], *shape[1:]).expand_as(weight)
        dense = weight.new_zeros(len(weight), self.in_channels + 1, *self.kernel_size)
        return dense.scatter(1, inp, weight)[out, 1:]

    def _group_major(self, x: Tensor) -> Tensor:
        """Reorder channels [n, width] to [groups, n, width / groups], padding each component to a multiple of the groups."""
        n, channel = self.algebra.n, -1 - len(self.kernel_size)
        width = -(-self.in_channels // n)
        x = _pad(x, channel, n * width - self.in_channels).unflatten(channel, (n, width))
        x = _pad(x, channel, self.groups * self.inp.width - width).unflatten(channel, (self.groups, -1))
        return x.transpose(channel - 2, channel - 1).flatten(channel - 2, channel)

    def _component_major(self, y: Tensor) -> Tensor:
        """Reorder channels [groups, n, width / groups] to [n, width] and remove the padding."""
        n, channel = self.algebra.n, -1 - len(self.kernel_size)
        y = y.unflatten(channel, (self.groups, n, -1)).transpose(channel - 2, channel - 1).flatten(channel - 1, channel)
        y = y.narrow(channel, 0, -(-self.out_channels // n)).flatten(channel - 1, channel)
        return y.narrow(channel, 0, self.out_channels)

    def extra_repr(self) -> str:
        """Show the real sizes and the arguments."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding}, dilation={self.dilation}, groups={self.groups}"
        return f"{text}, bias={self.bias is not None}"


def _pad(x: Tensor, axis: int, missing: int) -> Tensor:
    """Append zeros to a negative axis."""
    return F.pad(x, (0, 0) * (-1 - axis) + (0, missing)) if missing else x


class Conv1d(_Conv):
    r"""1D convolution over an algebra, y = w * x + b, with the arguments and shapes of `torch.nn.Conv1d`.

    Channels are real channels, component-major; the entries of the kernel are algebra elements that multiply from the left. A
    group consists of whole elements, a slice of every component, not of contiguous channels. Channels are padded internally
    to whole elements, and elements to a multiple of the groups; the padded weights are counted. The last groups may consist of
    padding only; the output of a group without inputs is the bias. Choose groups that divide the number of elements, C / n,
    of inputs and outputs. For ``blocks``, ``init`` and ``gain`` see `zoo.layers.Linear`.

    Attributes:
        components: w, [m, groups * width_out, width_in, kernel], the parameter; over the reals as torch's.
        weight: The real kernel, [out, in / groups, kernel]; with groups, in the channel order of the groups.
    """

    real = nn.Conv1d


class Conv2d(_Conv):
    r"""2D convolution over an algebra, y = w * x + b, with the arguments of `torch.nn.Conv2d`; see `Conv1d`."""

    real = nn.Conv2d


def computes_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module is an instance of a class and does not override its forward."""
    names = ("forward", CONV_FORWARD)
    return isinstance(module, kind) and all(getattr(type(module), n, None) is getattr(kind, n, None) for n in names)
