"""GPT: a causal Transformer that predicts the next token."""

from typing import Any

from torch import Tensor, nn

from zoo.backbones.blocks import Block
from zoo.backbones.generative import GenerativeModel, LMHead
from zoo.backbones.recipe import preset_sizes, recipe
from zoo.layers import Layers
from zoo.layers.attention import check_heads
from zoo.layers.kv_cache import KVCache
from zoo.layers.token_embedding import TokenEmbedding, length_limit

PRESETS: dict[str, dict[str, Any]] = {
    "micro": {"dim": 128, "depth": 4, "heads": 4, "ffn": 512, "dropout": 0.0},
    "nano": {"dim": 384, "depth": 6, "heads": 6, "ffn": 1536, "dropout": 0.2},
}
"""nanoGPT's character models: the one for a CPU, and the one for a GPU."""


class GPT(GenerativeModel):
    """Token embedding, causal blocks, norm, head: tokens [B, L] to the logits of each one's successor, [B, L, V].

    Args:
        token_embedding: The token embedding.
        blocks: The blocks.
        norm: The norm before the head.
        lm_head: The head.
    """

    def __init__(self, token_embedding: TokenEmbedding, blocks: list[Block], norm: nn.Module, lm_head: LMHead) -> None:
        super().__init__()
        self.token_embedding, self.blocks, self.norm, self.lm_head = token_embedding, nn.ModuleList(blocks), norm, lm_head
        self.max_length = length_limit(token_embedding)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits: [B, L], padded on the right if at all, to [B, L, V]."""
        return self._logits(tokens, None, None, None)

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next tokens, see `GenerativeModel.decode_step`."""
        position_ids = self.advance(cache, tokens, mask)
        return self._logits(tokens, cache.mask, position_ids, cache)

    def _logits(self, tokens: Tensor, mask: Tensor | None, position_ids: Tensor | None, cache: KVCache | None) -> Tensor:
        x = self.token_embedding(tokens, position_ids)
        for block in self.blocks:
            x = block(x, mask, causal=True, position_ids=position_ids, cache=cache)
        y: Tensor = self.lm_head(self.norm(x), self.token_embedding)
        return y


@recipe(data="glosses(task=language_model)", max_epochs=3, lr=3e-3, inputs=("tokens",), batch_size=8)
def gpt(
    layers: Layers,
    *,
    vocab_size: int,
    max_length: int,
    variant: str | None = None,
    dim: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    ffn: int | None = None,
    score: str | None = None,
    positions: str | None = "auto",
    norm: str = "layer",
    bias: bool = False,
    tied: bool = True,
    dropout: float | None = None,
) -> nn.Module:
    """GPT (Radford et al. 2019) as nanoGPT builds it; gpt/nano is its character model, gpt/micro its small one for a CPU.

    Args:
        layers: The factory that knows the algebra.
        vocab_size: Tokens of the vocabulary; 0 is padding.
        max_length: Tokens of a block, and rows of the learned positions.
        variant: ``micro`` (the default) or ``nano``; sizes given beside it win.
        dim: Channels of the residual stream.
        depth: Blocks.
        heads: Attention heads; dim / heads must be whole algebra elements.
        ffn: Hidden channels of the feed-forward networks.
        score: ``dot``, ``product`` (Tay et al. 2019, Eq. 4) or ``hermitian`` (Wang et al. 2020, Eq. 14).
        positions: none, learned, trigonometric or rotary (without limit of length); auto is learned, or none if the embedding
            encodes order.
        norm: Name of the norm: layer, rms or element.
        bias: Whether matrices and norms have biases.
        tied: Whether the head uses the embedding table; else it is a matrix of role ``head``.
        dropout: Probability everywhere.

    Raises:
        InputError: If an option is unknown or does not fit.
    """
    size = preset_sizes("gpt", PRESETS, variant or "micro", dim=dim, depth=depth, heads=heads, ffn=ffn, dropout=dropout)
    width, drop, rotary = size["dim"], size["dropout"], positions == "rotary"
    check_heads(width, size["heads"], layers.over("attention").n, rotary, f"gpt/{variant}" if variant else "gpt")
    positions = "none" if rotary else positions
    embedding = layers.token_embedding(vocab_size, width, max_length, positions=positions, default="learned", dropout=drop)
    # Each block adds twice to the residual stream; scaled so, the sum has the variance of one addition (Radford et al. 2019,
    # section 2.3).
    options: dict[str, Any] = {"score": score, "rotary": rotary, "norm": norm, "dropout": drop, "activation": "gelu"}
    options |= {"bias": bias, "gain": (2 * size["depth"]) ** -0.5}
    blocks = [Block(layers, width, size["heads"], size["ffn"], **options) for _ in range(size["depth"])]
    return GPT(embedding, blocks, layers.norm(width, norm, bias), LMHead(layers, embedding, width, vocab_size, tied))
