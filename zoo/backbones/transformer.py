"""The Transformer encoder and encoder-decoder, GPT, and Transformer-XL."""

from typing import Any

from torch import Tensor, cat, nn

from zoo.backbones.blocks import Block, Decoder, GenerativeModel, LMHead, Sizes, check_causal_norm, normalize, preset_sizes
from zoo.backbones.build import Recipe, recipe
from zoo.backbones.sequence_classifier import SequenceClassifier
from zoo.errors import InputError
from zoo.nn import Layers, TokenEmbedding
from zoo.nn.embedding import length_limit
from zoo.nn.kv_cache import KVCache
from zoo.registry import passes_options_to

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

    def _logits(
        self, target: Tensor, mask: Tensor | None = None, position_ids: Tensor | None = None, **options: object
    ) -> Tensor:
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
    presets=PRESETS,
)
@passes_options_to(preset_sizes)
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
        blocks = [Block(layers, size, cross=cross, score=score, rotary=rotary, norm=norm) for _ in range(size.depth)]
        return blocks, layers.norm(size.dim, norm)

    encoder = Encoder(embedding, *stack(cross=False))
    if seq2seq:
        return EncoderDecoder(encoder, *stack(cross=True), LMHead(layers, embedding, size.dim, vocab_size))
    if num_classes is None:
        raise InputError("missing num_classes: a transformer without seq2seq is a classifier", code="missing")
    head: dict[str, Any] = {"pooling": pooling, "pair": pair, "match": match, "readout": readout, "dropout": size.dropout}
    return SequenceClassifier(layers, encoder, size.dim, outputs=num_classes, **head)


GPT = {"micro": Sizes(128, 4, 4, 512, 0.0), "nano": Sizes(384, 6, 6, 1536, 0.2)}
"""nanoGPT's character models for a CPU and for a GPU."""
XL = {"micro": Sizes(128, 4, 4, 512, 0.0), "base": Sizes(512, 12, 8, 2048, 0.1)}
"""A small model for a CPU, and the base model for enwik8 and text8 of Dai et al. (2019)."""


@recipe(data="glosses(task=language_model)", max_epochs=3, lr=3e-3, inputs=("tokens",), batch_size=8, presets=GPT)
@passes_options_to(preset_sizes)
def gpt(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    score: str | None = None,
    positions: str | None = "auto",
    norm: str = "layer",
    bias: bool = False,
    tied: bool = True,
    activation: str = "gelu",
    mask_special: bool = False,
    **sizes: Any,
) -> nn.Module:
    """GPT (Radford et al. 2019) as in nanoGPT; gpt/nano and gpt/micro are its character models for a GPU and a CPU.

    Args:
        score: ``dot``, ``product`` (Tay et al. 2019, Eq. 4) or ``hermitian`` (Wang et al. 2020, Eq. 14).
        positions: none, learned, trigonometric or rotary (any length); auto is learned, or none if the embedding encodes order.
        norm: Name of the norm: layer, rms or element.
        bias: Whether matrices and norms have biases.
        tied: Whether the head uses the embedding table; else it is a matrix of role ``head``.
        activation: Of the feed-forward networks: gelu, gelu_tanh (the tanh approximation of GPT-2) or relu.
        mask_special: Whether padding and the unknown token get logits of -10^4, for weights of networks without these tokens.
        sizes: variant (``micro`` or ``nano``), dim, depth, heads, ffn, dropout: see `zoo.backbones.blocks.preset_sizes`.
    """
    check_causal_norm(norm)
    rotary = positions == "rotary"
    size = preset_sizes(layers, "gpt", GPT, rotary, **sizes)
    options: dict[str, Any] = {"positions": "none" if rotary else positions, "default": "learned", "dropout": size.dropout}
    embedding = layers.token_embedding(vocab_size, size.dim, max_length, **options)
    # Scale residual branches, two per block, by 1 / sqrt(2 depth) (Radford et al. 2019, section 2.3).
    options = {"score": score, "rotary": rotary, "norm": norm, "activation": activation, "bias": bias}
    blocks = [Block(layers, size, gain=(2 * size.depth) ** -0.5, **options) for _ in range(size.depth)]
    lm_head = LMHead(layers, embedding, size.dim, vocab_size, tied, mask_special)
    return Decoder(embedding, blocks, layers.norm(size.dim, norm, bias), lm_head)


class TransformerXL(Decoder):
    """Blocks with relative attention to a segment of ``segment`` tokens and a memory of the ``memory`` tokens before it.

    An embedding that encodes order counts positions from the start of the segment.
    """

    has_memory = True

    def __init__(self, *parts: Any, memory: int, segment: int) -> None:
        super().__init__(*parts)
        self.memory, self.segment = memory, segment

    def forward(self, tokens: Tensor, memory: list[Tensor] | None = None) -> Tensor:
        """Return the logits of a segment of the text: [B, L], padded on the right if at all, to [B, L, V].

        The memory is the inputs of every block in the preceding segments of the same rows, [B, M, dim] each; empty before the
        first segment. It is updated in place. None for no memory.
        """
        x = self.token_embedding(tokens)
        past: list[Tensor | None] = [*memory] if memory else [None] * len(self.blocks)
        updated = []
        for block, before in zip(self.blocks, past, strict=True):
            if memory is not None:
                inputs = x if before is None else cat([before, x], 1)
                updated.append(inputs[:, max(0, inputs.shape[1] - self.memory) :].detach())
            x = block(x, memory=before)
        if memory is not None:
            memory[:] = updated
        return self.logits(x)

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return a cache with the length of the memory, or at least of a segment without its last token."""
        return KVCache(limit=max(self.memory, self.segment - 1))

    def advance(self, cache: KVCache, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Add tokens to the cache and return their positions in the segment."""
        return super().advance(cache, tokens, mask) % self.segment


@recipe(data="glosses(task=language_model)", max_epochs=2, lr=3e-3, inputs=("token_stream",), batch_size=8, presets=XL)
@passes_options_to(preset_sizes)
def transformer_xl(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    memory: int | None = None,
    norm: str = "layer",
    tied: bool = True,
    **sizes: Any,
) -> nn.Module:
    """Transformer-XL (Dai et al. 2019): relative positions and a memory of the preceding segments; /base has the paper's sizes.

    With ``--embedding complex_order`` word vectors depend on the position in a segment (Wang et al. 2020, section 3.3).

    Args:
        memory: Tokens of the preceding segments to remember; by default max_length. 0 for none.
        norm: Name of the norm: layer, rms or element.
        tied: Whether the head uses the embedding table; else it is a matrix of role ``head``.
        sizes: variant (``micro`` or ``base``), dim, depth, heads, ffn, dropout: see `zoo.backbones.blocks.preset_sizes`.
    """
    check_causal_norm(norm)
    size = preset_sizes(layers, "transformer_xl", XL, **sizes)
    memory = max_length if memory is None else memory
    if memory < 0:
        raise InputError(f"memory={memory}: must be at least 0")
    embedding = layers.token_embedding(vocab_size, size.dim, max_length, positions="none", dropout=size.dropout)
    gain = (2 * size.depth) ** -0.5
    blocks = [Block(layers, size, relative=True, norm=norm, gain=gain) for _ in range(size.depth)]
    lm_head = LMHead(layers, embedding, size.dim, vocab_size, tied)
    return TransformerXL(embedding, blocks, layers.norm(size.dim, norm), lm_head, memory=memory, segment=max_length)
