"""Layers over an algebra that never assemble their real matrices, for runtimes that would do so at every call."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.kernels import AxisLayout
from zoo.nn import Conv1d, Conv2d, Linear
from zoo.nn.conv import computes_as
from zoo.nn.linear import ComputedWeight


class ComponentProducts(nn.Module):
    r"""A product with a weight over an algebra of dimension n, as products of components with a real layer.

        y_k = sum_{i, j} A[i, j, k] (w_i x_j)

    The real layer applies the components of all w_i, [m out elements, in elements, *kernel], to each x_j, with as many
    multiplications as the real matrix and 1/n of its numbers; the sum is a linear layer with m n inputs and n outputs.

    Args:
        layer: A linear layer or a convolution without groups.
    """

    def __init__(self, layer: ComputedWeight) -> None:
        super().__init__()
        w, self.inp, self.out, self.bias = layer.components, layer.inp, layer.out, layer.bias
        self.weight = nn.Parameter(w.detach().flatten(0, 1), requires_grad=False)
        self.register_buffer("sums", layer.weight_module.action().detach().permute(2, 1, 0).flatten(1).contiguous())
        self.sums: Tensor

    def multiply(self, x: Tensor) -> Tensor:
        """Return the products of all components, [rows n, in elements, *space] to [rows n, m out elements, *space]."""
        return F.linear(x, self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply, [..., in channels] to [..., out channels]."""
        y = self.products(x.reshape(-1, self.inp.channels))
        y = y.view(*x.shape[:-1], self.out.channels)
        return y if self.bias is None else y + self.bias

    def products(self, x: Tensor) -> Tensor:
        """Return the sum of products, [rows, in channels, *space] to [rows, out channels, *space]."""
        x, n = _elements(x, self.inp), self.inp.n
        z = self.multiply(x.flatten(0, 1))
        space = z.shape[2:]
        z = z.reshape(-1, self.sums.shape[1], self.out.elements * math.prod(space))
        y = F.linear(z.transpose(1, 2), self.sums).transpose(1, 2)
        return _channels(y.reshape(-1, n, self.out.blocks, self.out.width, *space), self.out)


class ComponentConvolutions(ComponentProducts):
    """A convolution, see `ComponentProducts`."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self.convolve = F.conv1d if isinstance(layer, Conv1d) else F.conv2d
        self.geometry = layer.stride, layer.padding, layer.dilation

    def multiply(self, x: Tensor) -> Tensor:
        """Convolve each component of the input with all components."""
        return self.convolve(x, self.weight, None, *self.geometry)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, [B, in channels, *space] to [B, out channels, *space]."""
        y = self.products(x)
        return y if self.bias is None else y + self.bias.view(-1, *(1,) * (y.dim() - 2))


def _elements(x: Tensor, layout: AxisLayout) -> Tensor:
    """Return channels [rows, channels, *space] as [rows, n, elements, *space]."""
    space = x.shape[2:]
    if layout.is_padded:
        x = x.reshape(x.shape[0], layout.blocks, layout.size, -1)
        x = F.pad(x, (0, 0, 0, layout.n * layout.width - layout.size))
    if layout.blocks > 1:
        x = x.reshape(x.shape[0], layout.blocks, layout.n, -1).transpose(1, 2)
    return x.reshape(x.shape[0], layout.n, layout.elements, *space)


def _channels(y: Tensor, layout: AxisLayout) -> Tensor:
    """Undo `_elements` for [rows, n, blocks, width, *space]."""
    space = y.shape[4:]
    if layout.blocks > 1:
        y = y.transpose(1, 2)
    if layout.is_padded:
        y = y.reshape(y.shape[0], layout.blocks, layout.n * layout.width, -1)[:, :, : layout.size]
    return y.reshape(y.shape[0], layout.channels, *space)


def with_component_products(net: nn.Module) -> nn.Module:
    """Replace the linear layers and convolutions of a network over algebras, and return the network, which may be one.

    Layers with groups, hooks or another padding than zeros remain, as do LSTMs and embedding tables.
    """
    for name, layer in list(net.named_modules()):
        kind = _product_of(layer)
        if kind is not None and name:
            net.set_submodule(name, kind(layer))
        elif kind is not None:
            return kind(layer)
    return net


def _product_of(layer: nn.Module) -> type[ComponentProducts] | None:
    if not isinstance(layer, ComputedWeight) or layer.algebra.n == 1 or layer.weight_module._forward_hooks:
        return None
    if computes_as(layer, Linear):
        return ComponentProducts
    is_plain = (computes_as(layer, Conv1d) or computes_as(layer, Conv2d)) and layer.groups == 1
    return ComponentConvolutions if is_plain and layer.padding_mode == "zeros" else None
