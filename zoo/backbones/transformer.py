"""The Transformer encoder, with Tensor2Tensor's sizes as presets."""

from typing import Any

from torch import Tensor, nn

from zoo.backbones.reading import Reading
from zoo.backbones.recipe import recipe
from zoo.errors import InputError
from zoo.layers import Layers

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 128, "depth": 2, "heads": 4, "ffn": 512, "dropout": 0.1},
    "base": {"dim": 512, "depth": 6, "heads": 8, "ffn": 2048, "dropout": 0.1},
}
"""Tensor2Tensor's ``transformer_tiny`` and ``transformer_base`` (Vaswani et al. 2018)."""


class Block(nn.Module):
    """Self-attention and two layers with a ReLU between, each with a residual: [B, L, dim] to [B, L, dim].

    Args:
        layers: The factory that knows the algebra.
        dim: Channels.
        heads: Attention heads.
        ffn: Channels between the two layers.
        score: How attention compares words, see `zoo.layers.Attention`.
        rotary: Whether attention turns queries and keys by their position.
        norm: Kind of norm, see `zoo.layers.norm.norm`.
        norm_first: Whether a norm stands before each part (as in Tensor2Tensor) or after its residual (Vaswani et al. 2017).
        dropout: Probability in attention, between the two layers, and before each residual.
    """

    def __init__(
        self,
        layers: Layers,
        dim: int,
        heads: int,
        ffn: int,
        *,
        score: str | None,
        rotary: bool,
        norm: str,
        norm_first: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = layers.attention(dim, heads, score=score, rotary=rotary, dropout=dropout)
        self.ffn = nn.Sequential(
            layers.linear(dim, ffn, role="ffn"), nn.ReLU(), nn.Dropout(dropout), layers.linear(ffn, dim, role="ffn")
        )
        self.norms = nn.ModuleList(layers.norm(dim, norm) for _ in range(2))
        self.norm_first, self.dropout = norm_first, nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Apply the block to words where ``mask`` [B, L] is true."""
        if self.norm_first:
            x = x + self.dropout(self.attention(self.norms[0](x), mask=mask))
            y: Tensor = x + self.dropout(self.ffn(self.norms[1](x)))
        else:
            x = self.norms[0](x + self.dropout(self.attention(x, mask=mask)))
            y = self.norms[1](x + self.dropout(self.ffn(x)))
        return y


class Encoder(nn.Module):
    """Words through blocks: tokens [B, L] to [B, L, dim]."""

    def __init__(self, words: nn.Module, blocks: list[Block], norm: nn.Module) -> None:
        super().__init__()
        self.words, self.blocks, self.norm = words, nn.ModuleList(blocks), norm

    def forward(self, tokens: Tensor) -> Tensor:
        """Read."""
        x, mask = self.words(tokens), tokens != 0
        for block in self.blocks:
            x = block(x, mask)
        y: Tensor = self.norm(x)
        return y


@recipe(data="glosses", max_epochs=6, lr=1e-3, reads=("text", "pair"))
def transformer(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int,
    pair: bool = False,
    variant: str | None = None,
    dim: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    ffn: int | None = None,
    score: str | None = None,
    positions: str | None = "auto",
    norm: str = "layer",
    norm_first: bool = True,
    pooling: str = "mean",
    match: str = "product",
    readout: str | None = None,
    dropout: float | None = None,
) -> nn.Module:
    """Transformer encoder (Vaswani et al. 2017) of one text or two; transformer/tiny and transformer/base are Tensor2Tensor's.

    Args:
        layers: The factory that knows the algebra; ``--scope attention`` is the partial model of Tay et al. (2019).
        vocab_size: Words; 0 is padding.
        max_length: Tokens of the longest text.
        num_classes: Logits, [B, num_classes].
        pair: Whether it compares two texts.
        variant: ``tiny`` (the default) or ``base``; sizes given beside it win.
        dim: Channels of the residual stream.
        depth: Blocks.
        heads: Attention heads; dim / heads must be whole algebra elements.
        ffn: Channels inside the feed-forward part.
        score: ``dot``, ``product`` (Tay et al. 2019, Eq. 4) or ``hermitian`` (Wang et al. 2020, Eq. 14).
        positions: none, learned, trigonometric or rotary; auto is trigonometric, or none if the embedding encodes order.
        norm: Kind of norm: layer, rms or element.
        norm_first: Norm before each part, or after its residual.
        pooling: How the words of a text become one vector: mean, max, max+mean, sum, first or last.
        match: How two texts meet: product for [a; b; a b; a - b], concat for [a; b].
        readout: How the head makes logits: channels, modulus or scalar.
        dropout: Probability everywhere.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    size = sizes(variant or "tiny", {"dim": dim, "depth": depth, "heads": heads, "ffn": ffn, "dropout": dropout})
    width, rotary, drop = size["dim"], positions == "rotary", size["dropout"]
    words = layers.words(
        vocab_size, width, max_length, positions="none" if rotary else positions, default="trigonometric", dropout=drop
    )
    options: dict[str, Any] = {"score": score, "rotary": rotary, "norm": norm, "norm_first": norm_first, "dropout": drop}
    blocks = [Block(layers, width, size["heads"], size["ffn"], **options) for _ in range(size["depth"])]
    last = layers.norm(width, norm) if norm_first else nn.Identity()
    encoder = Encoder(words, blocks, last)
    return Reading(
        layers, encoder, width, pooling=pooling, pair=pair, outputs=num_classes, match=match, readout=readout, dropout=drop
    )


def sizes(variant: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a preset, with those that were given in their place.

    Raises:
        InputError: If there is no such preset.
    """
    if variant not in PRESETS:
        raise InputError(f"unknown preset transformer/{variant}: use {', '.join(f'transformer/{name}' for name in PRESETS)}")
    found = PRESETS[variant] | {name: value for name, value in given.items() if value is not None}
    for name in ("dim", "depth", "heads", "ffn"):
        if found[name] < 1:
            raise InputError(f"{name}={found[name]}: a transformer has at least one")
    return found
