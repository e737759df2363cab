"""The Transformer, as an encoder or as an encoder and a decoder, with Tensor2Tensor's sizes as presets."""

from typing import Any

from torch import Tensor, nn

from zoo.backbones.blocks import Block
from zoo.backbones.generative import GenerativeModel, LMHead
from zoo.backbones.recipe import Recipe, preset_sizes, recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.attention import check_heads
from zoo.layers.kv_cache import KVCache
from zoo.layers.token_embedding import TokenEmbedding, length_limit

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 128, "depth": 2, "heads": 4, "ffn": 512, "dropout": 0.1},
    "base": {"dim": 512, "depth": 6, "heads": 8, "ffn": 2048, "dropout": 0.1},
}
"""Tensor2Tensor's ``transformer_tiny`` and ``transformer_base`` (Vaswani et al. 2018)."""


class Encoder(nn.Module):
    """Token embedding, blocks, norm: tokens [B, L] to features [B, L, dim]."""

    def __init__(self, token_embedding: TokenEmbedding, blocks: list[Block], norm: nn.Module) -> None:
        super().__init__()
        self.token_embedding, self.blocks, self.norm = token_embedding, nn.ModuleList(blocks), norm

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode: [B, L], padded on the right, to [B, L, dim]."""
        x, mask = self.token_embedding(tokens), tokens != 0
        for block in self.blocks:
            x = block(x, mask)
        y: Tensor = self.norm(x)
        return y


class EncoderDecoder(GenerativeModel):
    """The Transformer of Vaswani et al. (2017): encode a source text, predict the target token by token.

    Source, target and head share one embedding table (their section 3.4).

    Args:
        encoder: The encoder of the source.
        blocks: Blocks of the decoder, with cross-attention.
        norm: The norm before the head.
        lm_head: The head.
    """

    def __init__(self, encoder: Encoder, blocks: list[Block], norm: nn.Module, lm_head: LMHead) -> None:
        super().__init__()
        self.encoder, self.blocks, self.norm, self.lm_head = encoder, nn.ModuleList(blocks), norm, lm_head
        self.max_length = length_limit(encoder)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits of each target token's successor: [B, S] and [B, T] to [B, T, V], both padded on the right."""
        return self._logits(target, self.encoder(source), source != 0, None, None, None)

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Encode the source, [B, S] padded on the right, and keep it in the cache.

        Raises:
            InputError: If there is no source.
        """
        if source is None:
            raise InputError("this network translates a text: give it a source")
        return KVCache(self.encoder(source), source != 0)

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next target tokens, see `GenerativeModel.decode_step`."""
        assert cache.source is not None
        assert cache.source_mask is not None
        position_ids = self.advance(cache, tokens, mask)
        return self._logits(tokens, cache.source, cache.source_mask, cache.mask, position_ids, cache)

    def _logits(
        self,
        target: Tensor,
        source: Tensor,
        source_mask: Tensor,
        mask: Tensor | None,
        position_ids: Tensor | None,
        cache: KVCache | None,
    ) -> Tensor:
        options: dict[str, Any] = {"source": source, "source_mask": source_mask, "position_ids": position_ids, "cache": cache}
        x = self.encoder.token_embedding(target, position_ids)
        for block in self.blocks:
            x = block(x, mask, causal=True, **options)
        y: Tensor = self.lm_head(self.norm(x), self.encoder.token_embedding)
        return y


@recipe(
    data="glosses",
    max_epochs=4,
    lr=1e-3,
    inputs=("text", "text_pair", "source_target"),
    tasks={"seq2seq": Recipe("glosses(task=seq2seq)", 4, 3e-3)},
)
def transformer(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int | None = None,
    pair: bool = False,
    seq2seq: bool = False,
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
    """Transformer (Vaswani et al. 2017), encoder or encoder and decoder; transformer/tiny and /base are Tensor2Tensor's sizes.

    Args:
        layers: The factory that knows the algebra; ``--scope attention`` is the partial model of Tay et al. (2019).
        vocab_size: Tokens of the vocabulary; 0 is padding.
        max_length: Tokens of the longest text.
        num_classes: Logits, [B, num_classes]; not needed if ``seq2seq``.
        pair: Whether it compares two texts.
        seq2seq: Whether it translates: a decoder has as many blocks as the encoder.
        variant: ``tiny`` (the default) or ``base``; sizes given beside it win.
        dim: Channels of the residual stream.
        depth: Blocks.
        heads: Attention heads; dim / heads must be whole algebra elements.
        ffn: Hidden channels of the feed-forward networks.
        score: ``dot``, ``product`` (Tay et al. 2019, Eq. 4) or ``hermitian`` (Wang et al. 2020, Eq. 14).
        positions: none, learned, trigonometric or rotary; auto is trigonometric, or none if the embedding encodes order.
        norm: Name of the norm: layer, rms or element.
        norm_first: Norm before each part, or after its residual.
        pooling: How the features of a text become one vector: mean, max, max+mean, sum, first or last.
        match: How the vectors of two texts are combined: product for [a; b; a b; a - b], concat for [a; b].
        readout: How the head computes logits: channels, modulus or scalar.
        dropout: Probability everywhere.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    size = preset_sizes("transformer", PRESETS, variant or "tiny", dim=dim, depth=depth, heads=heads, ffn=ffn, dropout=dropout)
    width, rotary, drop = size["dim"], positions == "rotary", size["dropout"]
    check_heads(width, size["heads"], layers.over("attention").n, rotary, "transformer" + (f"/{variant}" if variant else ""))
    embedding = embed(layers, vocab_size, max_length, width, "none" if rotary else positions, drop, seq2seq)
    options: dict[str, Any] = {"score": score, "rotary": rotary, "norm": norm, "norm_first": norm_first, "dropout": drop}
    encoder = Encoder(embedding, *stack(layers, size, options))
    if seq2seq:
        return EncoderDecoder(
            encoder, *stack(layers, size, options | {"cross": True}), LMHead(layers, embedding, width, vocab_size)
        )
    head: dict[str, Any] = {"pooling": pooling, "pair": pair, "match": match, "readout": readout, "dropout": drop}
    return SequenceClassifier(layers, encoder, width, outputs=_needed(num_classes), **head)


def _needed(num_classes: int | None) -> int:
    """Return the number of logits of a transformer that classifies."""
    if num_classes is None:
        raise InputError("a transformer that classifies needs num_classes, the logits that it returns")
    return num_classes


def embed(
    layers: Layers, vocab_size: int, max_length: int, dim: int, positions: str | None, dropout: float, seq2seq: bool
) -> TokenEmbedding:
    """Return the token embedding."""
    # The head shares the table and needs small vectors, whatever the positions: Tensor2Tensor's factor.
    scale = dim**0.5 if seq2seq else None
    options: dict[str, Any] = {"positions": positions, "default": "trigonometric", "dropout": dropout, "scale": scale}
    return layers.token_embedding(vocab_size, dim, max_length, **options)


def stack(layers: Layers, size: dict[str, Any], options: dict[str, Any]) -> tuple[list[Block], nn.Module]:
    """Return the blocks of an encoder or a decoder, and the norm after the last one."""
    blocks = [Block(layers, size["dim"], size["heads"], size["ffn"], **options) for _ in range(size["depth"])]
    return blocks, layers.norm(size["dim"], options["norm"]) if options["norm_first"] else nn.Identity()
