"""Networks for vectors: a multilayer perceptron and a linear layer."""

from itertools import pairwise

from torch import nn

from zoo.backbones.blocks import ACTIVATIONS
from zoo.backbones.build import recipe
from zoo.errors import InputError, check_choice
from zoo.nn import Layers


@recipe(data="breast_cancer", max_epochs=30, lr=2e-3, inputs=("vector",))
def mlp(
    layers: Layers,
    *,
    in_features: int,
    out_features: int,
    dim: int = 64,
    depth: int = 2,
    activation: str = "gelu",
    dropout: float = 0.0,
) -> nn.Module:
    """Multilayer perceptron for vectors and tables: a real stem, hidden layers over the algebra, a real head.

    Args:
        dim: Real channels of the hidden layers.
        depth: Hidden layers after the stem.
        activation: ``relu``, ``gelu`` or ``gelu_tanh``.
        dropout: Dropout probability of a hidden channel.
    """
    check_choice("activation", activation, ACTIVATIONS)
    if dim < 1 or depth < 0:
        raise InputError(f"dim={dim}, depth={depth}: dim must be at least 1, depth at least 0")
    net = nn.Sequential()
    for i, (inp, out) in enumerate(pairwise([in_features] + [dim] * (depth + 1))):
        net.append(layers.linear(inp, out, role="ffn" if i else "stem"))
        net.append(ACTIVATIONS[activation]())
        net.append(nn.Dropout(dropout))
    return net.append(layers.linear(dim, out_features, role="head"))


@recipe(data="hamilton", max_epochs=40, lr=1e-2, inputs=("vector",))
def linear(layers: Layers, *, in_features: int, out_features: int, bias: bool = False, rank: int | None = None) -> nn.Module:
    """A linear layer over the algebra, which can learn a rotation or a product from data (Zhang et al. 2021, Fig. 2).

    Args:
        bias: Whether the layer has a bias.
        rank: Real channels between two layers; by default there is a single layer.
    """
    if rank is None:
        return layers.linear(in_features, out_features, bias, role="ffn")
    inner = layers.linear(in_features, rank, False, role="ffn")
    return nn.Sequential(inner, layers.linear(rank, out_features, bias, role="ffn"))
