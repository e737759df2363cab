"""The Transformer encoder and encoder-decoder, with the sizes of Tensor2Tensor as presets."""

from typing import Any

from torch import Tensor, nn

from zoo.backbones.blocks import Block, Sizes, check_causal_norm, normalize, preset_sizes
from zoo.backbones.generative import GenerativeModel, LMHead
from zoo.backbones.recipe import Recipe, passes_options_to, recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.errors import InputError
from zoo.layers import Layers, TokenEmbedding
from zoo.layers.kv_cache import KVCache
from zoo.layers.positions import length_limit

PRESETS = {"tiny": Sizes(128, 2, 4, 512, 0.1), "base": Sizes(512, 6, 8, 2048, 0.1)}
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
        return normalize(self.norm, x, mask)


class EncoderDecoder(GenerativeModel):
    """The Transformer of Vaswani et al. (2017): encode a source text, predict the target token by token.

    Source, target and head share one embedding table (their section 3.4).
    """

    def __init__(self, encoder: Encoder, blocks: list[Block], norm: nn.Module, lm_head: LMHead) -> None:
        super().__init__()
        self.encoder, self.blocks, self.norm, self.lm_head = encoder, nn.ModuleList(blocks), norm, lm_head
        self.max_length = length_limit(encoder)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits of each target token's successor: [B, S] and [B, T] to [B, T, V], both padded on the right."""
        return self._logits(target, source=self.encoder(source), source_mask=source != 0)

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return a cache with the encoded source, [B, S], padded on the right; `InputError` without a source."""
        if source is None:
            raise InputError("missing source: this network translates a text", code="missing")
        return KVCache(self.encoder(source), source != 0)

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next target tokens, see `GenerativeModel.decode_step`."""
        position_ids = self.advance(cache, tokens, mask)
        options: dict[str, Any] = {"source": cache.source, "source_mask": cache.source_mask, "cache": cache}
        return self._logits(tokens, cache.mask, position_ids, **options)

    def _logits(self, target: Tensor, mask: Tensor | None = None, position_ids: Tensor | None = None, **options: Any) -> Tensor:
        x = self.encoder.token_embedding(target, position_ids)
        for block in self.blocks:
            x = block(x, mask, causal=True, position_ids=position_ids, **options)
        y: Tensor = self.lm_head(self.norm(x), self.encoder.token_embedding)
        return y


@recipe(
    data="glosses",
    max_epochs=4,
    lr=1e-3,
    inputs=("text", "text_pair", "source_target"),
    tasks={"seq2seq": Recipe("glosses(task=seq2seq)", 4, 3e-3)},
)
@passes_options_to(preset_sizes, PRESETS)
def transformer(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    num_classes: int | None = None,
    pair: bool = False,
    seq2seq: bool = False,
    score: str | None = None,
    positions: str | None = "auto",
    norm: str = "layer",
    norm_first: bool = True,
    pooling: str = "mean",
    match: str = "product",
    readout: str | None = None,
    **sizes: Any,
) -> nn.Module:
    """Transformer (Vaswani et al. 2017), encoder or encoder and decoder; transformer/tiny and /base are Tensor2Tensor's sizes.

    Args:
        pair: Whether it compares two texts.
        seq2seq: Whether it translates, with a decoder of as many blocks as the encoder.
        score: ``dot``, ``product`` (Tay et al. 2019, Eq. 4) or ``hermitian`` (Wang et al. 2020, Eq. 14).
        positions: none, learned, trigonometric or rotary; auto is trigonometric, or none if the embedding encodes order.
        norm: Name of the norm: layer, rms, element or batch (without a decoder).
        norm_first: Whether the norm precedes each part or follows its residual.
        pooling: How the features of a text become one vector: mean, max, max+mean, sum, first or last.
        match: How the vectors of two texts are combined: product for [a; b; a b; a - b], concat for [a; b].
        readout: How the head computes logits: channels, modulus or scalar.
        sizes: variant (``tiny`` or ``base``), dim, depth, heads, ffn, dropout: see `zoo.backbones.blocks.preset_sizes`.
    """
    if seq2seq:
        check_causal_norm(norm)
    rotary = positions == "rotary"
    size = preset_sizes(layers, "transformer", PRESETS, rotary, **sizes)
    options: dict[str, Any] = {"positions": "none" if rotary else positions, "default": "trigonometric"}
    # The head shares the embedding table and needs small vectors: use Tensor2Tensor's factor.
    options["scale"] = size.dim**0.5 if seq2seq else None
    embedding = layers.token_embedding(vocab_size, size.dim, max_length, dropout=size.dropout, **options)

    def stack(cross: bool) -> tuple[list[Block], nn.Module]:
        shared: dict[str, Any] = {"score": score, "rotary": rotary, "norm": norm, "norm_first": norm_first}
        blocks = [Block(layers, size, cross=cross, **shared) for _ in range(size.depth)]
        return blocks, layers.norm(size.dim, norm) if norm_first else nn.Identity()

    encoder = Encoder(embedding, *stack(cross=False))
    if seq2seq:
        return EncoderDecoder(encoder, *stack(cross=True), LMHead(layers, embedding, size.dim, vocab_size))
    if num_classes is None:
        raise InputError("missing num_classes: a transformer without seq2seq is a classifier", code="missing")
    head: dict[str, Any] = {"pooling": pooling, "pair": pair, "match": match, "readout": readout, "dropout": size.dropout}
    return SequenceClassifier(layers, encoder, size.dim, outputs=num_classes, **head)
