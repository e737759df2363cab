"""One layer: what a rule can learn."""

from torch import nn

from zoo.backbones.recipe import recipe
from zoo.layers import Layers


@recipe(data="hamilton", max_epochs=40, lr=1e-2, inputs=("vector",))
def linear(layers: Layers, *, in_features: int, out_features: int, bias: bool = False) -> nn.Module:
    """One layer over the algebra, for vectors: learns a rotation or a product from data (Zhang et al. 2021, Fig. 2).

    Args:
        layers: The factory that knows the algebra.
        in_features: Real channels of an input, [B, in_features].
        out_features: Real channels of a target, [B, out_features].
        bias: Whether to add one.
    """
    return layers.linear(in_features, out_features, bias, role="ffn")
