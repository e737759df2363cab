"""What the networks that read text share: one text or two, the features between, and the head."""

import torch
from torch import Tensor, nn

from zoo.backbones.pooling import Pool
from zoo.errors import InputError
from zoo.layers import Layers

MATCHES = {"product": 4, "concat": 2}
"""Ways to put two texts side by side, and how many vectors of each text's size that makes."""


class SequenceClassifier(nn.Module):
    """Encode one text, or two with the same encoder, and answer with real numbers.

    Two texts a and b become [a; b; a b; a - b] with the product of the algebra, element by element over the reals (Tay et al.
    2019, section 4.1), or only [a; b] (Zhang et al. 2021, App. B.1).

    Args:
        layers: The factory that knows the algebra.
        encoder: From tokens [B, L] to [B, L, vectors * size], or without pooling to [B, vectors * size].
        size: Real channels of a vector.
        pooling: How the words of a text become one vector, see `zoo.backbones.pooling.Pool`; None if the encoder does that.
        pair: Whether there are two texts.
        outputs: Real numbers of the answer.
        hidden: Channels of the layers before the head; 0 for no such layers.
        depth: How many of these layers, each with a ReLU.
        match: ``product`` or ``concat``.
        readout: See `Layers.head`.
        dropout: Probability after pooling and after each layer.
        vectors: Vectors side by side that the encoder gives for each word, such as the two directions of an LSTM.
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
        self.pool = None if pooling is None else Pool(pooling)
        self.product = layers.product(size, role="ffn") if pair and match == "product" else None
        self.vectors = vectors * (self.pool.blocks if self.pool else 1)
        blocks = self.vectors * (MATCHES[match] if pair else 1)
        self.between, channels, blocks = feedforward(layers, blocks * size, hidden, depth if hidden else 0, blocks, dropout)
        self.head = layers.head(channels, outputs, readout, blocks)

    def forward(self, tokens: Tensor, other: Tensor | None = None) -> Tensor:
        """Answer: tokens [B, L], and if there are two texts also [B, M], to [B, outputs]."""
        if self.pair != (other is not None):
            raise InputError(f"this network reads {'two texts' if self.pair else 'one text'} at a time")
        x = self.encode(tokens)
        if other is not None:
            y = self.encode(other)
            x = torch.cat([x, y] if self.product is None else [x, y, self.multiply(x, y), x - y], -1)
        answer: Tensor = self.head(self.between(x))
        return answer

    def encode(self, tokens: Tensor) -> Tensor:
        """Encode and pool one text: [B, L] to [B, self.vectors * size]."""
        x: Tensor = self.encoder(tokens)
        return self.dropout(self.pool(x, tokens != 0) if self.pool else x)  # type: ignore[no-any-return]

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply vector by vector."""
        assert self.product is not None
        z: Tensor = self.product(x.unflatten(-1, (self.vectors, -1)), y.unflatten(-1, (self.vectors, -1)))
        return z.flatten(-2)


def feedforward(
    layers: Layers, features: int, hidden: int, depth: int, blocks: int, dropout: float
) -> tuple[nn.Sequential, int, int]:
    """Stack layers with ReLU and dropout; return them, the channels and the blocks that come out.

    Args:
        layers: The factory that knows the algebra.
        features: Channels that go in, in ``blocks`` vectors side by side.
        hidden: Channels of each layer.
        depth: Layers.
        blocks: Vectors side by side on the way in.
        dropout: Probability after each layer.
    """
    stack: list[nn.Module] = []
    for _ in range(depth):
        stack += [layers.linear(features, hidden, role="ffn", blocks=(blocks, 1)), nn.ReLU(), nn.Dropout(dropout)]
        features, blocks = hidden, 1
    return nn.Sequential(*stack), features, blocks
