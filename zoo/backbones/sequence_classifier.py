"""Classifiers of texts and pairs of texts: encoder, pooling, features of the pair, and head."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.errors import InputError, check_choice
from zoo.nn import Layers
from zoo.nn.embedding import length_limit

POOLINGS = ("mean", "max", "max+mean", "sum", "first", "last")  # names of poolings; a plus concatenates two
MATCHES = {"product": 4, "concat": 2}
"""Ways to combine the vectors of two texts, and the number of concatenated vectors in the result."""


def pool(x: Tensor, mask: Tensor, name: str) -> Tensor:
    """Pool features over the tokens of a text: [B, L, C] and a mask [B, L], False at padding, to [B, C].

    The result for an empty text is zero (for ``first`` and ``last`` the features of padding).
    """
    if name == "max":
        y = x.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
        return y.masked_fill(~mask.any(1, keepdim=True), 0.0)
    if name == "first":
        return x[:, 0]
    if name == "last":
        return x[torch.arange(x.shape[0], device=x.device), mask.sum(1) - 1]
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total if name == "sum" else total / mask.sum(1, keepdim=True).clamp_min(1)


class SequenceClassifier(nn.Module):
    """Encode one text, or two with the same encoder, and classify them.

    Two texts a and b are combined to [a; b; a b; a - b] with the product of the algebra, which is elementwise over the reals
    (Tay et al. 2019, section 4.1), or to [a; b] (Zhang et al. 2021, App. B.1).

    Args:
        encoder: Maps tokens [B, L] to [B, L, vectors * size] or, if ``pooling`` is None, to [B, vectors * size].
        size: Real channels of a vector.
        pooling: One of `POOLINGS`; None if the encoder pools.
        hidden: Channels of the layers before the head; 0 for no such layers.
        depth: Number of these layers, each with a ReLU.
        readout: See `Layers.head`.
        dropout: Dropout probability after pooling and after each layer.
        vectors: Concatenated vectors that the encoder returns for each token, such as the two directions of an LSTM.
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
            raise InputError(f"hidden={hidden}, depth={depth}: must be at least 0")
        if pooling is not None:
            check_choice("pooling", pooling, POOLINGS)
        check_choice("match", match, MATCHES)
        self.encoder, self.dropout, self.pair = encoder, nn.Dropout(dropout), pair
        self.max_length = length_limit(encoder)
        self.pooling = pooling
        self.product = layers.product(size, role="ffn") if pair and match == "product" else None
        self.vectors = vectors * len((pooling or "").split("+"))
        blocks = self.vectors * (MATCHES[match] if pair else 1)
        self.mlp, channels, blocks = feedforward(layers, blocks * size, hidden, depth if hidden else 0, blocks, dropout)
        self.head = layers.head(channels, outputs, readout, blocks)

    def forward(self, tokens: Tensor, other: Tensor | None = None) -> Tensor:
        """Classify tokens [B, L], and for pairs also [B, M]; 0 is padding. Return [B, outputs]."""
        if self.pair != (other is not None):
            raise InputError(f"this network expects {'two texts' if self.pair else 'one text'}")
        x = self.encode(tokens)
        if other is not None:
            y = self.encode(other)
            if self.product is None:
                x = torch.cat([x, y], -1)
            else:
                product = self.product(*(t.unflatten(-1, (self.vectors, -1)) for t in (x, y))).flatten(-2)
                x = torch.cat([x, y, product, x - y], -1)
        return self.head(self.mlp(x))  # type: ignore[no-any-return]

    def encode(self, tokens: Tensor) -> Tensor:
        """Encode and pool one text: [B, L] to [B, self.vectors * size]."""
        x: Tensor = self.encoder(tokens)
        if self.pooling is not None:
            x = torch.cat([pool(x, tokens != 0, name) for name in self.pooling.split("+")], -1)
        y: Tensor = self.dropout(x)
        return y

    def extra_repr(self) -> str:
        """Show the pooling."""
        return f"pooling={self.pooling}"


def feedforward(
    layers: Layers, features: int, hidden: int, depth: int, blocks: int, dropout: float
) -> tuple[nn.Sequential, int, int]:
    """Build layers with ReLU and dropout for ``blocks`` vectors; return them, and channels and blocks of the output."""
    stack: list[nn.Module] = []
    for _ in range(depth):
        stack += [layers.linear(features, hidden, role="ffn", blocks=(blocks, 1)), nn.ReLU(), nn.Dropout(dropout)]
        features, blocks = hidden, 1
    return nn.Sequential(*stack), features, blocks


def text_classifier(
    layers: Layers,
    width: int,
    size: int,
    encode: Callable[[nn.Module], nn.Module],
    pooling: str | None,
    vectors: int = 1,
    depth: int = 1,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int,
    pair: bool = False,
    positions: str | None = "auto",
    hidden: int = 0,
    match: str = "product",
    readout: str | None = None,
    dropout: float = 0.2,
    scale_embedding: bool = True,
) -> nn.Module:
    """Build a `SequenceClassifier` of word vectors; the keywords are the common options of text encoders.

    Args:
        width: Channels of a word vector.
        encode: Builds the encoder from the token embedding.
        positions: Position embedding: none (the same as auto), learned or trigonometric.
        dropout: Dropout probability for word vectors, after pooling and after layers.
        scale_embedding: Whether word vectors are multiplied by sqrt(width) with trigonometric positions (Vaswani et al. 2017).
    """
    scale = None if scale_embedding else 1.0
    encoder = encode(layers.token_embedding(vocab_size, width, max_length, positions=positions, dropout=dropout, scale=scale))
    head: dict[str, Any] = {"hidden": hidden, "depth": depth, "match": match, "readout": readout, "dropout": dropout}
    return SequenceClassifier(layers, encoder, size, pooling=pooling, pair=pair, outputs=num_classes, vectors=vectors, **head)
