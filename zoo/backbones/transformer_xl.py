"""Transformer-XL: a language model that reads a text segment by segment and attends to a memory of the segments before."""

from typing import Any

from torch import Tensor, cat, nn

from zoo.backbones.blocks import Block, Sizes, check_causal_norm, preset_sizes
from zoo.backbones.generative import Decoder, LMHead
from zoo.backbones.recipe import passes_options_to, recipe
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.kv_cache import KVCache

Memory = list[Tensor]
"""Inputs of every block in the segments before, [B, M, dim] each; an empty list before the first segment."""

PRESETS = {"micro": Sizes(128, 4, 4, 512, 0.0), "base": Sizes(512, 12, 8, 2048, 0.1)}
"""A small one for a CPU, and the enwik8 and text8 base model of Dai et al. (2019)."""


class TransformerXL(Decoder):
    """Blocks with relative attention, which see ``memory`` tokens before those of a segment of ``segment`` tokens.

    An embedding that encodes order counts positions from the start of the segment.
    """

    has_memory = True

    def __init__(self, *parts: Any, memory: int, segment: int) -> None:
        super().__init__(*parts)
        self.memory, self.segment = memory, segment

    def forward(self, tokens: Tensor, memory: Memory | None = None) -> Tensor:
        """Return logits: [B, L], padded on the right if at all, to [B, L, V].

        Args:
            tokens: A segment of the text, [B, L].
            memory: The memory of the segments before, of the same rows; it is updated in place. None for no memory.
        """
        x, kept = self.token_embedding(tokens), []
        befores: list[Tensor | None] = [*memory] if memory else [None] * len(self.blocks)
        for block, before in zip(self.blocks, befores, strict=True):
            if memory is not None:
                seen = x if before is None else cat([before, x], 1)
                kept.append(seen[:, max(0, seen.shape[1] - self.memory) :].detach())
            x = block(x, memory=before)
        if memory is not None:
            memory[:] = kept
        return self._head(x)

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return a cache of as many tokens as the memory holds, and of at least what the last token of a segment attends to."""
        return KVCache(limit=max(self.memory, self.segment - 1))

    def advance(self, cache: KVCache, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Count more tokens in the cache and return their positions in a segment."""
        return super().advance(cache, tokens, mask) % self.segment


@recipe(data="glosses(task=language_model)", max_epochs=2, lr=3e-3, inputs=("token_stream",), batch_size=8)
@passes_options_to(preset_sizes, PRESETS)
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
    """Transformer-XL (Dai et al. 2019): relative positions, and a memory of the segments before; transformer_xl/base is theirs.

    With ``--embedding complex_order`` words are waves over their position in a segment (Wang et al. 2020, section 3.3).

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens of the vocabulary; 0 is padding.
        max_length: Tokens of a segment.
        memory: Tokens of the segments before that are kept; by default max_length. 0 for none.
        norm: Name of the norm: layer, rms or element.
        tied: Whether the head uses the embedding table; else it is a matrix of role ``head``.
        sizes: variant (``micro`` or ``base``), dim, depth, heads, ffn, dropout: see `zoo.backbones.blocks.preset_sizes`.
    """
    check_causal_norm(norm)
    size = preset_sizes(layers, "transformer_xl", PRESETS, **sizes)
    memory = max_length if memory is None else memory
    if memory < 0:
        raise InputError(f"memory={memory}: the tokens that are kept are 0 or more")
    embedding = layers.token_embedding(vocab_size, size.dim, max_length, positions="none", dropout=size.dropout)
    gain = (2 * size.depth) ** -0.5
    blocks = [Block(layers, size, relative=True, norm=norm, gain=gain) for _ in range(size.depth)]
    lm_head = LMHead(layers, embedding, size.dim, vocab_size, tied)
    return TransformerXL(embedding, blocks, layers.norm(size.dim, norm), lm_head, memory=memory, segment=max_length)
