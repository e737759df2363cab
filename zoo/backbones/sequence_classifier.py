"""The classifier of one text or of a pair of texts: an encoder, pooling, features of the pair, and a head."""

import torch
from torch import Tensor, nn

from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.token_embedding import length_limit

POOLINGS = {"mean": 1, "max": 1, "max+mean": 2, "sum": 1, "first": 1, "last": 1}
"""Names of poolings, and how many vectors each puts side by side."""

MATCHES = {"product": 4, "concat": 2}
"""Ways to combine the vectors of two texts, and how many such vectors come out side by side."""


class Pooling(nn.Module):
    """Pool features over the tokens of a text: [B, L, C] and a mask [B, L], False at padding, to [B, vectors * C].

    Args:
        name: ``mean``, ``max``, ``max+mean`` (side by side), ``sum``, ``first`` or ``last`` token.

    Attributes:
        vectors: How many vectors of C channels come out side by side.

    Raises:
        InputError: If the name is unknown.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in POOLINGS:
            raise InputError(f"unknown pooling '{name}': use {', '.join(POOLINGS)}")
        self.name, self.vectors = name, POOLINGS[name]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool: [B, L, C] to [B, vectors * C]."""
        return torch.cat([pool(x, mask, name) for name in self.name.split("+")], -1)

    def extra_repr(self) -> str:
        """Show the name."""
        return self.name


def pool(x: Tensor, mask: Tensor, name: str) -> Tensor:
    """Apply one pooling: [B, L, C] and a mask [B, L], False at padding, to [B, C]."""
    if name == "max":
        return x.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
    if name == "first":
        return x[:, 0]
    if name == "last":
        return x[torch.arange(x.shape[0], device=x.device), mask.sum(1) - 1]
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total if name == "sum" else total / mask.sum(1, keepdim=True)


class SequenceClassifier(nn.Module):
    """Encode one text, or two with the same encoder, and return real numbers.

    Two texts a and b become [a; b; a b; a - b] with the product of the algebra, element by element over the reals (Tay et al.
    2019, section 4.1), or only [a; b] (Zhang et al. 2021, App. B.1).

    Args:
        layers: The factory that knows the algebra.
        encoder: Maps tokens [B, L] to [B, L, vectors * size], or if ``pooling`` is None to [B, vectors * size].
        size: Real channels of a vector.
        pooling: How the features of a text become one vector, see `Pooling`; None if the encoder pools.
        pair: Whether there are two texts.
        outputs: Real numbers that are returned for each text or pair.
        hidden: Channels of the layers before the head; 0 for no such layers.
        depth: Number of these layers, each with a ReLU.
        match: ``product`` or ``concat``.
        readout: See `Layers.head`.
        dropout: Probability after pooling and after each layer.
        vectors: Vectors side by side that the encoder returns for each token, such as the two directions of an LSTM.

    Attributes:
        max_length: The longest text, if positions are learned; None if any length can be read.

    Raises:
        InputError: If an option is unknown or out of range.
    """

    def __init__(
        self,
        layers: Layers,
        encoder: nn.Module,
        size: int,
        *,
        pooling: str | None,
        pair: bool,
        outputs: int,
        hidden: int = 0,
        depth: int = 1,
        match: str = "product",
        readout: str | None = None,
        dropout: float = 0.0,
        vectors: int = 1,
    ) -> None:
        super().__init__()
        if hidden < 0 or depth < 0:
            raise InputError(f"hidden={hidden}: the layers before the head number 0 or more, of 0 or more channels")
        if match not in MATCHES:
            raise InputError(f"unknown match '{match}': use {', '.join(MATCHES)}")
        self.encoder, self.dropout, self.pair = encoder, nn.Dropout(dropout), pair
        self.max_length = length_limit(encoder)
        self.pooling = None if pooling is None else Pooling(pooling)
        self.product = layers.product(size, role="ffn") if pair and match == "product" else None
        self.vectors = vectors * (self.pooling.vectors if self.pooling else 1)
        blocks = self.vectors * (MATCHES[match] if pair else 1)
        self.mlp, channels, blocks = feedforward(layers, blocks * size, hidden, depth if hidden else 0, blocks, dropout)
        self.head = layers.head(channels, outputs, readout, blocks)

    def forward(self, tokens: Tensor, other: Tensor | None = None) -> Tensor:
        """Classify tokens [B, L], and for pairs also [B, M]; 0 is padding. Return [B, outputs].

        Raises:
            InputError: If one text is given to a network of pairs, or two to a network of single texts.
        """
        if self.pair != (other is not None):
            raise InputError(f"this network reads {'two texts' if self.pair else 'one text'} at a time")
        x = self.encode(tokens)
        if other is not None:
            y = self.encode(other)
            x = torch.cat([x, y] if self.product is None else [x, y, self.multiply(x, y), x - y], -1)
        answer: Tensor = self.head(self.mlp(x))
        return answer

    def encode(self, tokens: Tensor) -> Tensor:
        """Encode and pool one text: [B, L] to [B, self.vectors * size]."""
        x: Tensor = self.encoder(tokens)
        return self.dropout(self.pooling(x, tokens != 0) if self.pooling else x)  # type: ignore[no-any-return]

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply vector by vector, [B, self.vectors * size] each."""
        assert self.product is not None
        z: Tensor = self.product(x.unflatten(-1, (self.vectors, -1)), y.unflatten(-1, (self.vectors, -1)))
        return z.flatten(-2)


def feedforward(
    layers: Layers, features: int, hidden: int, depth: int, blocks: int, dropout: float
) -> tuple[nn.Sequential, int, int]:
    """Stack layers with ReLU and dropout; return them, and the channels and blocks of their output.

    Args:
        layers: The factory that knows the algebra.
        features: Input channels, in ``blocks`` vectors side by side.
        hidden: Channels of each layer.
        depth: Number of layers.
        blocks: Vectors side by side in the input.
        dropout: Probability after each layer.
    """
    stack: list[nn.Module] = []
    for _ in range(depth):
        stack += [layers.linear(features, hidden, role="ffn", blocks=(blocks, 1)), nn.ReLU(), nn.Dropout(dropout)]
        features, blocks = hidden, 1
    return nn.Sequential(*stack), features, blocks
