"""The base classes of generative networks: the language-model head, and decoding with a KV cache."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.data.tokens import UNKNOWN
from zoo.errors import InputError
from zoo.layers import Layers, TokenEmbedding
from zoo.layers.kv_cache import KVCache
from zoo.layers.positions import length_limit


class LMHead(nn.Module):
    """Map features [..., dim] to logits [..., V], with the embedding table or with a layer.

    If ``tied``, it uses the table of the token embedding, if that has one (Press & Wolf 2017). With ``bar_special`` the logits
    of padding and the unknown token are -10^4.
    """

    def __init__(
        self,
        layers: Layers,
        token_embedding: TokenEmbedding,
        dim: int,
        vocab_size: int,
        tied: bool = True,
        bar_special: bool = False,
    ) -> None:
        super().__init__()
        self.barred = UNKNOWN + 1 if bar_special else 0
        self.tied = tied and getattr(token_embedding.embedding, "can_be_tied", False)
        self.layer = None if self.tied else layers.linear(dim, vocab_size, False, role="head")

    def forward(self, x: Tensor, token_embedding: TokenEmbedding) -> Tensor:
        """Return the logits: [..., dim] to [..., V]."""
        embedding: Any = token_embedding.embedding
        y: Tensor = embedding.logits(x) if self.layer is None else self.layer(x)
        if self.barred:
            y = torch.cat([y.new_full((*y.shape[:-1], self.barred), -1e4), y[..., self.barred :]], -1)
        return y


class GenerativeModel(nn.Module):
    """Base class of networks that predict the next token and can decode step by step.

    Decoding starts with ``cache = net.init_cache(source)``; the first `decode_step` reads the whole prompt (the prefill), each
    later one the newest token.

    Attributes:
        max_length: The maximum sequence length of learned positions; None without a limit.
        has_memory: Whether `forward` also takes a memory: a list, empty at the start of a text, that it updates in place.
    """

    max_length: int | None = None
    has_memory: bool = False

    def init_cache(self, source: Tensor | None = None) -> KVCache:
        """Return an empty cache; a translation network encodes its ``source`` [B, S], padded on the right."""
        return KVCache()

    def advance(self, cache: KVCache, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Add tokens to the cache and return their position ids; `InputError` beyond ``max_length``."""
        length = cache.length + tokens.shape[1]
        if self.max_length is not None and length > self.max_length:
            raise InputError(f"sequence length {length} exceeds max_length={self.max_length} of the learned positions")
        return cache.advance(tokens, mask)

    @abstractmethod
    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next tokens [B, l], add them to the cache, and return the logits of their successors, [B, l, V].

        The mask, bool [B, l], is False at padding, which may be on the left of the prompt; None for no padding.
        """


class Decoder(GenerativeModel):
    """Token embedding, causal blocks, norm, head: tokens [B, L] to the logits of their successors, [B, L, V]."""

    def __init__(self, token_embedding: TokenEmbedding, blocks: Iterable[nn.Module], norm: nn.Module, lm_head: LMHead) -> None:
        super().__init__()
        self.token_embedding, self.blocks, self.norm, self.lm_head = token_embedding, nn.ModuleList(blocks), norm, lm_head
        self.max_length = length_limit(token_embedding)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits: [B, L], padded on the right if at all, to [B, L, V]."""
        return self._decode(tokens)

    def decode_step(self, tokens: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Read the next tokens, see `GenerativeModel.decode_step`."""
        position_ids = self.advance(cache, tokens, mask)
        return self._decode(tokens, cache.mask, position_ids, cache=cache)

    def _decode(self, tokens: Tensor, mask: Tensor | None = None, position_ids: Tensor | None = None, **options: Any) -> Tensor:
        x = self.token_embedding(tokens, position_ids)
        for block in self.blocks:
            x = block(x, mask, causal=True, position_ids=position_ids, **options)
        return self.logits(x)

    def logits(self, x: Tensor) -> Tensor:
        """Apply the last norm and the head: [B, L, dim] to [B, L, V]."""
        y: Tensor = self.lm_head(self.norm(x), self.token_embedding)
        return y
