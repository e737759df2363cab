"""The linear layer over any algebra."""

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.layers.computed_weight import ComputedWeight
from zoo.layers.kernel_choice import multiply
from zoo.layers.weight import Weight


class Linear(ComputedWeight):
    r"""Linear layer over an algebra, y = w x + b, with out * in / n weights and `out` real biases.

    The last axis of inputs and outputs is component-major. Sizes are padded internally to a multiple of n: the layer has
    n * ceil(out / n) * ceil(in / n) weights, and weights of padding receive no gradient. A channel axis may consist of several
    vectors side by side (the gates of an LSTM, q, k and v, the heads), each component-major.

    Args:
        algebra: The product, of dimension n.
        in_features: Real input channels.
        out_features: Real output channels.
        bias: Whether to add a real bias, [out_features].
        blocks: Number of vectors side by side on the input and the output axis, which must divide their sizes.
        init: Initialisation with a factor ``gain``, see `zoo.layers.init.draw_components`.

    Attributes:
        components: The parameter w, [m, blocks_out * width_out, blocks_in * width_in]; over the reals [out, in].
        weight: The real matrix, [out_features, in_features]: over the reals the parameter, otherwise computed and read-only.

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
        """Multiply and add the bias: [..., in_features] to [..., out_features]."""
        return multiply(self.weight_module, x, self.bias)

    def extra_repr(self) -> str:
        """Show the real sizes, the bias and the blocks."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        blocks = (self.inp.blocks, self.out.blocks)
        return text if blocks == (1, 1) else f"{text}, blocks={blocks}"
