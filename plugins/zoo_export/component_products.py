"""Layers over an algebra that never assemble their real matrices, for runtimes that would do so at every call."""

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

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

    def __init__(self, layer: Linear | Conv1d | Conv2d) -> None:
        super().__init__()
        w, self.inp, self.out = layer.components, layer.inp, layer.out
        self.bias: nn.Parameter | None = layer.bias
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
        z = self.multiply(self.inp.split(x).flatten(0, 1))
        space = z.shape[2:]
        z = z.reshape(-1, self.sums.shape[1], self.out.elements * math.prod(space))
        y = F.linear(z.transpose(1, 2), self.sums).transpose(1, 2)
        return self.out.join(y.reshape(-1, self.out.n, self.out.blocks, self.out.width, *space))


class ComponentConvolutions(ComponentProducts):
    """A convolution, see `ComponentProducts`."""

    def __init__(self, layer: Conv1d | Conv2d) -> None:
        super().__init__(layer)
        self.convolve: Callable[..., Tensor] = F.conv1d if isinstance(layer, Conv1d) else F.conv2d
        self.geometry = layer.stride, layer.padding, layer.dilation

    def multiply(self, x: Tensor) -> Tensor:
        """Convolve each component of the input with all components."""
        return self.convolve(x, self.weight, None, *self.geometry)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, [B, in channels, *space] to [B, out channels, *space]."""
        y = self.products(x)
        return y if self.bias is None else y + self.bias.view(-1, *(1,) * (y.dim() - 2))


def with_component_products(net: nn.Module) -> nn.Module:
    """Replace the linear layers and convolutions of a network over algebras, and return the network, which may be one.

    Layers with groups, hooks or another padding than zeros remain, as do LSTMs and embedding tables.
    """
    for name, layer in list(net.named_modules()):
        product = _product_of(layer)
        if product is not None and not name:
            return product
        if product is not None:
            net.set_submodule(name, product)
    return net


def _product_of(layer: nn.Module) -> ComponentProducts | None:
    if not isinstance(layer, ComputedWeight) or layer.algebra.n == 1 or layer.weight_module._forward_hooks:
        return None
    if isinstance(layer, Linear) and computes_as(layer, Linear):
        return ComponentProducts(layer)
    if isinstance(layer, Conv1d | Conv2d) and (computes_as(layer, Conv1d) or computes_as(layer, Conv2d)):
        return ComponentConvolutions(layer) if layer.groups == 1 and layer.padding_mode == "zeros" else None
    return None
