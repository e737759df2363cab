"""The linear layer, over any algebra."""

import torch
from torch import Tensor, nn

from zoo import kernels
from zoo.algebras import Algebra
from zoo.kernels.layout import layout
from zoo.layers.init import draw_components


class Linear(nn.Module):
    r"""Compute y = w x + b over an algebra: out * in / n weights and `out` real biases.

    Works on real tensors whose last axis is component-major. A size that n does not divide is padded inside: the layer then has
    n * ceil(out / n) * ceil(in / n) weights, and those that only meet padding get no gradient.

    A channel axis may hold several vectors side by side (the gates of an LSTM, q, k and v, the heads), each component-major by
    itself. ``blocks=(b_in, b_out)`` says how many there are, so every gate and head is made of whole algebra elements.

    Args:
        algebra: The product, of dimension n.
        in_features: Real input channels.
        out_features: Real output channels.
        bias: Whether to add a real bias, [out_features].
        blocks: Vectors that lie side by side on the input and on the output axis.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.
        gain: Factor on the initial standard deviation.

    Attributes:
        components: w, [m, blocks_out * width_out, blocks_in * width_in], the parameter.
        weight: The real matrix it stands for, [out_features, in_features], computed.

    Raises:
        InputError: If the blocks do not divide the features.

    Example:
        >>> sum(p.numel() for p in Linear(Algebra(torch.ones(2, 2, 2)), 6, 4).parameters())
        16
    """

    components: nn.Parameter

    def __init__(
        self,
        algebra: Algebra,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        blocks: tuple[int, int] = (1, 1),
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.algebra = algebra.for_layer()
        self.in_features, self.out_features = in_features, out_features
        self.inp, self.out = (layout(size, algebra.n, b) for size, b in zip((in_features, out_features), blocks, strict=True))
        self.init, self.gain = init, gain
        self.components = nn.Parameter(torch.empty(algebra.m, self.out.elements, self.inp.elements))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew and set the bias to zero."""
        n = self.algebra.n
        fans = self.in_features / n, self.out_features / n
        draw_components(self.components, self.algebra.action, *fans, init=self.init, gain=self.gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def weight(self) -> Tensor:
        """The real matrix of this layer, [out_features, in_features]."""
        return kernels.real_matrix(self.algebra.action, self.components, self.out, self.inp)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: [..., in_features] to [..., out_features]."""
        return kernels.linear(x, self.algebra.action, self.components, self.bias, self.out, self.inp, self.training)

    def extra_repr(self) -> str:
        """Show the real sizes, as `torch.nn.Linear` does, and the blocks if there are any."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        blocks = (self.inp.blocks, self.out.blocks)
        return text if blocks == (1, 1) else f"{text}, blocks={blocks}"
