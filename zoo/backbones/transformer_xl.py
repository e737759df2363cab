"""Transformer-XL: a language model that reads a text segment by segment and attends to a memory of the segments before."""

from typing import Any

from torch import Tensor, cat, nn

from zoo.backbones.generative import GenerativeModel, LMHead
from zoo.backbones.recipe import preset_sizes, recipe
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.attention import check_heads
from zoo.layers.kv_cache import KVCache
from zoo.layers.token_embedding import TokenEmbedding

Memory = list[Tensor]
"""Inputs of every block in the segments before, [B, M, dim] each; an empty list before the first segment."""

PRESETS: dict[str, dict[str, Any]] = {
    "micro": {"dim": 128, "depth": 4, "heads": 4, "ffn": 512, "dropout": 0.0},
    "base": {"dim": 512, "depth": 12, "heads": 8, "ffn": 2048, "dropout": 0.1},
}
"""A small one for a CPU, and the enwik8 and text8 base model of Dai et al. (2019)."""


class RelativeBlock(nn.Module):
    """Relative attention to a memory and the tokens, and a feed-forward network, with residuals: [B, L, dim] to the same.

    Args:
        layers: The factory that knows the algebra.
        dim: Channels.
        heads: Attention heads.
        ffn: Hidden channels of the feed-forward network.
        norm: Name of the norm, which stands before each part.
        dropout: Probability in attention, in the feed-forward network, and before each residual.
        gain: Factor on the initial standard deviation of the matrices that add to the residual stream.
    """

    def __init__(self, layers: Layers, dim: int, heads: int, ffn: int, *, norm: str, dropout: float, gain: float) -> None:
        super().__init__()
        self.attention = layers.relative_attention(dim, heads, dropout=dropout, gain=gain)
        self.ffn = nn.Sequential(
            layers.linear(dim, ffn, role="ffn"),
            nn.ReLU(),
            nn.Dropout(dropout),
            layers.linear(ffn, dim, role="ffn", gain=gain),
        )
        self.norms, self.dropout = nn.ModuleList(layers.norm(dim, norm) for _ in range(2)), nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        """Apply the block; the memory, [B, M, dim], is normalised as the tokens are."""
        before = None if memory is None else self.norms[0](memory)
        x = x + self.dropout(self.attention(self.norms[0](x), before, mask, cache=cache))
        y: Tensor = x + self.dropout(self.ffn(self.norms[1](x)))
        return y


class TransformerXL(GenerativeModel):
    """Token embedding, blocks with a memory, norm, head: tokens [B, L] to the logits of each one's successor, [B, L, V].

    Args:
        token_embedding: The token embedding.
        blocks: The blocks.
        norm: The norm before the head.
        lm_head: The head.
        memory: Tokens of the segments before that are kept, at most.
        segment: Tokens of a segment; an embedding that encodes order counts positions from the start of the segment.
    """

    has_memory = True

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        blocks: list[RelativeBlock],
        norm: nn.Module,
        lm_head: LMHead,
        memory: int,
        segment: int,
    ) -> None:
        super().__init__()
        self.token_embedding, self.blocks, self.norm, self.lm_head = token_embedding, nn.ModuleList(blocks), norm, lm_head
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
            x = block(x, before, None, None)
        if memory is not None:
            memory[:] = kept
        y: Tensor = self.lm_head(self.norm(x), self.token_embedding)
        return y

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return a cache of as many tokens as the memory holds, and of at least what the last token of a segment attends to."""
        return KVCache(limit=max(self.memory, self.segment - 1))

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next tokens, see `GenerativeModel.decode_step`."""
        x = self.token_embedding(tokens, self.advance(cache, tokens, mask) % self.segment)
        for block in self.blocks:
            x = block(x, None, cache.mask, cache)
        y: Tensor = self.lm_head(self.norm(x), self.token_embedding)
        return y


@recipe(data="glosses(task=language_model)", max_epochs=2, lr=3e-3, inputs=("token_stream",), batch_size=8)
def transformer_xl(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    variant: str | None = None,
    dim: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    ffn: int | None = None,
    memory: int | None = None,
    norm: str = "layer",
    tied: bool = True,
    dropout: float | None = None,
) -> nn.Module:
    """Transformer-XL (Dai et al. 2019): relative positions, and a memory of the segments before; transformer_xl/base is theirs.

    With ``--embedding complex_order`` words are waves over their position in a segment (Wang et al. 2020, section 3.3).

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens of the vocabulary; 0 is padding.
        max_length: Tokens of a segment.
        variant: ``micro`` (the default) or ``base``; sizes given beside it win.
        dim: Channels of the residual stream.
        depth: Blocks.
        heads: Attention heads; dim / heads must be whole algebra elements.
        ffn: Hidden channels of the feed-forward networks.
        memory: Tokens of the segments before that are kept; by default max_length. 0 for none.
        norm: Name of the norm: layer, rms or element.
        tied: Whether the head uses the embedding table; else it is a matrix of role ``head``.
        dropout: Probability everywhere.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    sizes = {"dim": dim, "depth": depth, "heads": heads, "ffn": ffn, "dropout": dropout}
    size = preset_sizes("transformer_xl", PRESETS, variant or "micro", **sizes)
    if memory is not None and memory < 0:
        raise InputError(f"memory={memory}: the tokens that are kept are 0 or more")
    width, drop, heads = size["dim"], size["dropout"], size["heads"]
    name = f"transformer_xl/{variant}" if variant else "transformer_xl"
    check_heads(width, heads, layers.over("attention").n, backbone=name)
    embedding = layers.token_embedding(vocab_size, width, max_length, positions="none", dropout=drop)
    options: dict[str, Any] = {"norm": norm, "dropout": drop, "gain": (2 * size["depth"]) ** -0.5}
    blocks = [RelativeBlock(layers, width, heads, size["ffn"], **options) for _ in range(size["depth"])]
    lm_head = LMHead(layers, embedding, width, vocab_size, tied)
    memory = max_length if memory is None else memory
    return TransformerXL(embedding, blocks, layers.norm(width, norm), lm_head, memory, max_length)
