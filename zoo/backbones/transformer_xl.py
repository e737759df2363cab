"""Transformer-XL: a language model that reads a text piece by piece and remembers the pieces before."""

from typing import Any

from torch import Tensor, cat, nn

from zoo.backbones.generative import GenerativeModel, LMHead
from zoo.backbones.recipe import recipe
from zoo.backbones.sizes import sizes
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.kv_cache import KVCache
from zoo.layers.token_embedding import TokenEmbedding

Memory = list[Tensor]
"""What every block read in the pieces before, [B, M, dim] each; an empty list before the first piece."""

PRESETS: dict[str, dict[str, Any]] = {
    "micro": {"dim": 128, "depth": 4, "heads": 4, "ffn": 512, "dropout": 0.0},
    "base": {"dim": 512, "depth": 12, "heads": 8, "ffn": 2048, "dropout": 0.1},
}
"""A small one for a CPU, and the enwik8 and text8 base model of Dai et al. (2019)."""


class RecurrentBlock(nn.Module):
    """Relative attention to a memory and the words, and two layers with a ReLU, each with a residual: [B, L, dim] to the same.

    Args:
        layers: The factory that knows the algebra.
        dim: Channels.
        heads: Attention heads.
        ffn: Channels between the two layers.
        norm: Kind of norm, before each part.
        dropout: Probability in attention, between the two layers, and before each residual.
        gain: Factor on the initial spread of what is added to the residual stream.
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
        """Apply the block; what it remembers of the words before, [B, M, dim], is normed as the words are."""
        old = None if memory is None else self.norms[0](memory)
        x = x + self.dropout(self.attention(self.norms[0](x), old, mask, cache=cache))
        y: Tensor = x + self.dropout(self.ffn(self.norms[1](x)))
        return y


class TransformerXL(GenerativeModel):
    """Words through blocks that remember: tokens [B, L] to the logits of what follows each, [B, L, V].

    Args:
        token_embedding: What reads tokens.
        blocks: The blocks.
        norm: The last norm.
        lm_head: What answers.
        memory: Tokens that are remembered, at most.
        length: Tokens of a piece, from whose beginning an embedding counts that encodes order.
    """

    has_memory = True

    def __init__(
        self,
        token_embedding: TokenEmbedding,
        blocks: list[RecurrentBlock],
        norm: nn.Module,
        lm_head: LMHead,
        memory: int,
        length: int,
    ) -> None:
        super().__init__()
        self.token_embedding, self.blocks, self.norm, self.lm_head = token_embedding, nn.ModuleList(blocks), norm, lm_head
        self.memory, self.length = memory, length

    def forward(self, tokens: Tensor, memory: Memory | None = None) -> Tensor:
        """Read a piece of a text, padded on the right if at all.

        Args:
            tokens: The piece, [B, L].
            memory: What was remembered of the pieces before, of the same rows; it is renewed in place. None to forget.
        """
        x, kept = self.token_embedding(tokens), []
        olds: list[Tensor | None] = [*memory] if memory else [None] * len(self.blocks)
        for block, old in zip(self.blocks, olds, strict=True):
            seen = x if old is None else cat([old, x], 1)
            kept.append(seen[:, max(0, seen.shape[1] - self.memory) :].detach())
            x = block(x, old, None, None)
        if memory is not None:
            memory[:] = kept
        y: Tensor = self.lm_head(self.norm(x), self.token_embedding)
        return y

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Remember keys and values of as many words as there is memory for, and no fewer than the last word of a piece sees."""
        return KVCache(limit=max(self.memory, self.length - 1))

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read on, see `GenerativeModel.decode_step`."""
        x = self.token_embedding(tokens, self.read(tokens, cache, mask) % self.length)
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
    """Transformer-XL (Dai et al. 2019): relative positions, and a memory of the pieces before; transformer_xl/base is theirs.

    With ``--embedding complex_order`` words are waves over their place in a piece, as in Wang et al. (2020, section 4.3).

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens; 0 is padding.
        max_length: Tokens of a piece.
        variant: ``micro`` (the default) or ``base``; sizes given beside it win.
        dim: Channels of the residual stream.
        depth: Blocks.
        heads: Attention heads; dim / heads must be whole algebra elements.
        ffn: Channels inside the feed-forward part.
        memory: Tokens remembered of the pieces before; by default max_length. 0 for none.
        norm: Kind of norm: layer, rms or element.
        tied: Whether the word table also makes the logits; else a matrix of role ``head`` does.
        dropout: Probability everywhere.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    size = sizes("transformer_xl", PRESETS, variant or "micro", dim=dim, depth=depth, heads=heads, ffn=ffn, dropout=dropout)
    if memory is not None and memory < 0:
        raise InputError(f"memory={memory}: the words that are remembered are 0 or more")
    width, drop = size["dim"], size["dropout"]
    words = layers.token_embedding(vocab_size, width, max_length, positions="none", dropout=drop)
    options: dict[str, Any] = {"norm": norm, "dropout": drop, "gain": (2 * size["depth"]) ** -0.5}
    blocks = [RecurrentBlock(layers, width, size["heads"], size["ffn"], **options) for _ in range(size["depth"])]
    logits = LMHead(layers, words, width, vocab_size, tied)
    memory = max_length if memory is None else memory
    return TransformerXL(words, blocks, layers.norm(width, norm), logits, memory, max_length)
