"""The linear layer, over any algebra."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.layers.computed_weight import ComputedWeight
from zoo.layers.kernel_choice import multiply
from zoo.layers.weight import Weight


class Linear(ComputedWeight):
    r"""Compute y = w x + b over an algebra: out * in / n weights and `out` real biases.

    Works on real tensors whose last axis is component-major. A size that n does not divide is padded inside: the layer then has
    n * ceil(out / n) * ceil(in / n) weights, and those that only meet padding get no gradient. A channel axis may hold several
    vectors side by side (the gates of an LSTM, q, k and v, the heads), each component-major by itself.

    Args:
        algebra: The product, of dimension n.
        in_features: Real input channels.
        out_features: Real output channels.
        bias: Whether to add a real bias, [out_features].
        blocks: How many vectors lie side by side on the input and on the output axis; `InputError` unless they divide them.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.
        gain: Factor on the initial standard deviation.

    Attributes:
        components: The parameter w, [m, blocks_out * width_out, blocks_in * width_in]; over the reals [out, in].
        weight: The real matrix, [out_features, in_features]: over the reals the parameter, else computed and read-only.

    Example:
        >>> sum(p.numel() for p in Linear(Algebra(torch.ones(2, 2, 2)), 6, 4).parameters())
        16
    """

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
        self.weight_module = Weight(algebra, in_features, out_features, blocks=blocks, init=init, gain=gain)
        self.in_features, self.out_features = in_features, out_features
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer: [..., in_features] to [..., out_features]."""
        weight: Any = self._modules["weight_module"]
        call = weight.ready(x) if weight._ready else None
        y: Tensor = multiply(weight, x, self.bias) if call is None else call(x, self.bias)
        return y

    def extra_repr(self) -> str:
        """Show the real sizes, as `torch.nn.Linear` does, and the blocks if there are any."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        blocks = (self.inp.blocks, self.out.blocks)
        return text if blocks == (1, 1) else f"{text}, blocks={blocks}"
