"""Convolutions over any algebra, with the arguments of torch's convolutions."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.kernels import Geometry
from zoo.kernels.internals import CONV_FORWARD
from zoo.nn.kernel_choice import apply_kernel
from zoo.nn.linear import ComputedWeight
from zoo.nn.weight import Weight, shown

Size = int | tuple[int, ...]


def _of_torch_conv(name: str) -> Any:
    """Return a property that is an attribute of torch's layer, so that a changed stride applies to what it convolves."""
    return property(
        lambda layer: getattr(layer.__dict__["torch_conv"], name),
        lambda layer, value: setattr(layer.__dict__["torch_conv"], name, value),
    )


class Convolution(ComputedWeight):
    """Base class of all convolutions. Torch's layer, on the meta device, checks the arguments and convolves with our weight."""

    real: type[nn.Module]
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...] = _of_torch_conv("kernel_size")
    stride: tuple[int, ...] = _of_torch_conv("stride")
    padding: Any = _of_torch_conv("padding")  # in torch's convolutions also a word
    padding_mode: str = _of_torch_conv("padding_mode")
    output_padding: tuple[int, ...] = _of_torch_conv("output_padding")
    dilation: tuple[int, ...] = _of_torch_conv("dilation")
    groups: int = _of_torch_conv("groups")

    def _build(self, channels: tuple[int, int], kernel_size: Size, groups: int, bias: bool, options: Any, weight: Any) -> None:
        """Create torch's layer with ``options``, the weight and the bias."""
        torch_conv: Any = self.real(1, 1, kernel_size, bias=bias, device="meta", **options)
        torch_conv.groups = groups
        self.__dict__["torch_conv"] = torch_conv  # not a submodule
        self.in_channels, self.out_channels = channels
        self.weight_module = Weight(weight.pop("algebra"), *channels, self.kernel_size, groups=groups, **weight)
        self.bias = nn.Parameter(torch.zeros(channels[1])) if bias else None

    def _convolve(self, x: Tensor, bias: Tensor | None, *args: object) -> Tensor:
        """Convolve as torch's layer, with our weight."""
        raise NotImplementedError

    def _convolve_groups(self, x: Tensor, *args: object) -> Tensor:
        """Convolve with groups over an algebra, which are spread over all components, but contiguous for torch."""
        y = self._component_major(self._convolve(self._group_major(x), None, *args))
        return y if self.bias is None else y + self.bias.to(y.dtype).view(-1, *(1,) * len(self.kernel_size))

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
        return f"{text}, bias={self.bias is not None}{shown(self.algebra)}"


def _pad(x: Tensor, axis: int, missing: int) -> Tensor:
    """Append zeros to a negative axis."""
    return F.pad(x, (0, 0) * (-1 - axis) + (0, missing)) if missing else x


class _Conv(Convolution):
    def __init__(
        self,
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
        algebra: Algebra | str,
        blocks: tuple[int, int] = (1, 1),
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        options = {"stride": stride, "padding": padding, "dilation": dilation, "padding_mode": padding_mode}
        weight = {"algebra": algebra, "blocks": blocks, "init": init, "gain": gain}
        self._build((in_channels, out_channels), kernel_size, groups, bias, options, weight)

    def _convolve(self, x: Tensor, bias: Tensor | None, *args: object) -> Tensor:
        convolved: Tensor = getattr(self.__dict__["torch_conv"], CONV_FORWARD)(x, self.weight_module(), bias)
        return convolved

    def forward(self, x: Tensor) -> Tensor:
        """Convolve: [..., in_channels, *space] to [..., out_channels, *space]."""
        if self.groups > 1 and self.algebra.n > 1:
            return self._convolve_groups(x)
        # Kernels support only zero padding of the same width on both sides.
        y: Tensor | None = None
        if self.padding_mode == "zeros" and not isinstance(self.padding, str):
            y = apply_kernel(self.weight_module, x, self.bias, Geometry(self.stride, self.padding, self.dilation))
        return self._convolve(x, self.bias) if y is None else y


class Conv1d(_Conv):
    r"""1D convolution over an algebra, y = w * x + b, with the arguments and shapes of `torch.nn.Conv1d`.

    Channels are real channels, component-major; the entries of the kernel are algebra elements that multiply from the left. A
    group consists of whole elements, a slice of every component, not of contiguous channels. Channels are padded internally
    to whole elements, and elements to a multiple of the groups; the padded weights are counted. The last groups may consist of
    padding only; the output of a group without inputs is the bias. Choose groups that divide the number of elements, C / n,
    of inputs and outputs. For ``algebra``, ``blocks``, ``init`` and ``gain`` see `zoo.nn.Linear`.

    Attributes:
        components: w, [m, groups * width_out, width_in, kernel], the parameter; over the reals as torch's.
        weight: The real kernel, [out, in / groups, kernel]; with groups, in the channel order of the groups.
    """

    real = nn.Conv1d


class Conv2d(_Conv):
    r"""2D convolution over an algebra, y = w * x + b, with the arguments of `torch.nn.Conv2d`; see `Conv1d`."""

    real = nn.Conv2d


class Conv3d(_Conv):
    r"""3D convolution over an algebra, y = w * x + b, with the arguments of `torch.nn.Conv3d`; see `Conv1d`."""

    real = nn.Conv3d


class ConvTranspose(Convolution):
    """Base class of transposed convolutions."""

    axes: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        *,
        algebra: Algebra | str,
        blocks: tuple[int, int] = (1, 1),
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"stride": stride, "padding": padding, "output_padding": output_padding}
        options |= {"dilation": dilation, "padding_mode": padding_mode}
        # An output sums kernel / stride of the products of an axis.
        steps = (stride,) * self.axes if isinstance(stride, int) else stride
        weight = {"algebra": algebra, "blocks": blocks, "init": init, "gain": gain * math.sqrt(math.prod(steps))}
        self._build((in_channels, out_channels), kernel_size, groups, bias, options, weight)

    def matrix(self) -> Tensor:
        """Return the real kernel in torch's shape, [in, out / groups, *kernel]; callers must not write to it."""
        by_group: Tensor = super().matrix().unflatten(0, (self.groups, -1))
        return by_group.transpose(1, 2).flatten(0, 1)

    def dense_weight(self) -> Tensor:
        """Return the equivalent kernel without groups, [in, out, *kernel]."""
        return super().dense_weight().transpose(0, 1)

    def _convolve(self, x: Tensor, bias: Tensor | None, *args: object) -> Tensor:
        parameters: Any = {"weight": self.matrix(), "bias": bias}
        convolved: Tensor = functional_call(self.__dict__["torch_conv"], parameters, (x, *args))
        return convolved

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Convolve: [..., in_channels, *space] to [..., out_channels, *space]; for ``output_size`` see torch's layer."""
        if self.groups > 1 and self.algebra.n > 1:
            return self._convolve_groups(x, output_size)
        return self._convolve(x, self.bias, output_size)


class ConvTranspose1d(ConvTranspose):
    r"""Transposed 1D convolution over an algebra, with the arguments of `torch.nn.ConvTranspose1d`; see `Conv1d`.

    The element at every position of the input is multiplied from the left by the entries of the kernel.

    Attributes:
        weight: The real kernel, [in, out / groups, kernel]; with groups, in the channel order of the groups.
    """

    real, axes = nn.ConvTranspose1d, 1


class ConvTranspose2d(ConvTranspose):
    r"""Transposed 2D convolution over an algebra, with the arguments of `torch.nn.ConvTranspose2d`; see `ConvTranspose1d`."""

    real, axes = nn.ConvTranspose2d, 2


class ConvTranspose3d(ConvTranspose):
    r"""Transposed 3D convolution over an algebra, with the arguments of `torch.nn.ConvTranspose3d`; see `ConvTranspose1d`."""

    real, axes = nn.ConvTranspose3d, 3


def computes_as(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module is an instance of a class and does not override its forward."""
    names = ("forward", CONV_FORWARD)
    return isinstance(module, kind) and all(getattr(type(module), n, None) is getattr(kind, n, None) for n in names)
