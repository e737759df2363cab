"""The Transformer, encoder or encoder and decoder, with Tensor2Tensor's sizes as presets."""

from typing import Any

from torch import Tensor, nn

from zoo.backbones.blocks import Block
from zoo.backbones.generative import GenerativeModel, LMHead
from zoo.backbones.recipe import Recipe, recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.backbones.sizes import sizes
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.kv_cache import KVCache
from zoo.layers.token_embedding import TokenEmbedding

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 128, "depth": 2, "heads": 4, "ffn": 512, "dropout": 0.1},
    "base": {"dim": 512, "depth": 6, "heads": 8, "ffn": 2048, "dropout": 0.1},
}
"""Tensor2Tensor's ``transformer_tiny`` and ``transformer_base`` (Vaswani et al. 2018)."""


class Encoder(nn.Module):
    """Words through blocks: tokens [B, L] to [B, L, dim]."""

    def __init__(self, token_embedding: TokenEmbedding, blocks: list[Block], norm: nn.Module) -> None:
        super().__init__()
        self.token_embedding, self.blocks, self.norm = token_embedding, nn.ModuleList(blocks), norm

    def forward(self, tokens: Tensor) -> Tensor:
        """Read."""
        x, mask = self.token_embedding(tokens), tokens != 0
        for block in self.blocks:
            x = block(x, mask)
        y: Tensor = self.norm(x)
        return y


class EncoderDecoder(GenerativeModel):
    """Read one text and write another, word by word: the Transformer of Vaswani et al. (2017).

    Source, target and the softmax share one word table (their section 3.4).

    Args:
        encoder: Reads the source.
        blocks: Blocks of the decoder, which attend to the source.
        norm: The last norm of the decoder.
        lm_head: What answers.
        max_length: Positions it has; None if there is no limit.
    """

    def __init__(self, encoder: Encoder, blocks: list[Block], norm: nn.Module, lm_head: LMHead, max_length: int | None) -> None:
        super().__init__()
        self.encoder, self.blocks, self.norm, self.lm_head = encoder, nn.ModuleList(blocks), norm, lm_head
        self.max_length = max_length

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits of what follows each target word: [B, S] and [B, T] to [B, T, V], both padded on the right."""
        return self._write(target, self.encoder(source), source != 0, None, None, None)

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Read the source, [B, S] padded on the right."""
        if source is None:
            raise InputError("this network answers a text: give it a source")
        return KVCache(self.encoder(source), source != 0)

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read on in the target, see `GenerativeModel.decode_step`."""
        assert cache.source is not None
        assert cache.source_mask is not None
        position_ids = self.read(tokens, cache, mask)
        return self._write(tokens, cache.source, cache.source_mask, cache.mask, position_ids, cache)

    def _write(
        self,
        target: Tensor,
        source: Tensor,
        source_mask: Tensor,
        mask: Tensor | None,
        position_ids: Tensor | None,
        cache: KVCache | None,
    ) -> Tensor:
        x = self.encoder.token_embedding(target, position_ids)
        for block in self.blocks:
            x = block(x, mask, causal=True, source=source, source_mask=source_mask, position_ids=position_ids, cache=cache)
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
        vocab_size: Tokens; 0 is padding.
        max_length: Tokens of the longest text.
        num_classes: Logits, [B, num_classes]; not needed to write.
        pair: Whether it compares two texts.
        seq2seq: Whether it answers a text with a text: a decoder has as many blocks as the encoder.
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
    size = sizes("transformer", PRESETS, variant or "tiny", dim=dim, depth=depth, heads=heads, ffn=ffn, dropout=dropout)
    width, rotary, drop = size["dim"], positions == "rotary", size["dropout"]
    words = place(layers, vocab_size, max_length, width, "none" if rotary else positions, drop, seq2seq)
    options: dict[str, Any] = {"score": score, "rotary": rotary, "norm": norm, "norm_first": norm_first, "dropout": drop}
    encoder = Encoder(words, *stack(layers, size, options))
    if seq2seq:
        decoder, logits = stack(layers, size, options | {"cross": True}), LMHead(layers, words, width, vocab_size)
        return EncoderDecoder(encoder, *decoder, logits, max_length if words.position_embedding.kind == "learned" else None)
    if num_classes is None:
        raise InputError("a transformer that does not write needs num_classes, the numbers that it answers with")
    head: dict[str, Any] = {"pooling": pooling, "pair": pair, "match": match, "readout": readout}
    return SequenceClassifier(layers, encoder, width, outputs=num_classes, dropout=drop, **head)


def place(
    layers: Layers, vocab_size: int, max_length: int, dim: int, positions: str | None, dropout: float, writes: bool
) -> TokenEmbedding:
    """Return what reads tokens and tells where they stand."""
    # The softmax reads the same table and wants small vectors, whatever the positions: Tensor2Tensor's factor.
    scale = dim**0.5 if writes else None
    return layers.token_embedding(
        vocab_size, dim, max_length, positions=positions, default="trigonometric", dropout=dropout, scale=scale
    )


def stack(layers: Layers, size: dict[str, Any], options: dict[str, Any]) -> tuple[list[Block], nn.Module]:
    """Return the blocks of an encoder or a decoder, and the norm behind them."""
    blocks = [Block(layers, size["dim"], size["heads"], size["ffn"], **options) for _ in range(size["depth"])]
    return blocks, layers.norm(size["dim"], options["norm"]) if options["norm_first"] else nn.Identity()
