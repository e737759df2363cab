"""Parts of Transformers: blocks, the language-model head, and the base classes of generative networks."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isqrt, log
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.data.tokens import UNKNOWN
from zoo.errors import InputError, check_choice
from zoo.nn import Layers, TokenEmbedding
from zoo.nn.attention import check_heads
from zoo.nn.elements import TokenBatchNorm
from zoo.nn.embedding import length_limit
from zoo.nn.kv_cache import KVCache

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "gelu_tanh": partial(nn.GELU, "tanh")}


class Sizes(NamedTuple):
    """The sizes of a Transformer, see `preset_sizes`."""

    dim: int
    depth: int
    heads: int
    ffn: int
    dropout: float
    head_dim: int | None = None

    def resize(self, **given: Any) -> "Sizes":
        """Return the sizes with the given ones replaced; unless given, ``ffn`` and ``heads`` follow ``dim``.

        ``ffn`` keeps its ratio to ``dim``. The width of a head is the divisor of ``dim`` that is nearest, by ratio, to the
        present width; multiples of 8 come first, because they hold whole elements of every algebra with n = 1, 2, 4 or 8.

        >>> Sizes(128, 4, 4, 512, 0.0).resize(dim=1024)
        Sizes(dim=1024, depth=4, heads=32, ffn=4096, dropout=0.0, head_dim=None)
        """
        dim, width = given.get("dim", self.dim), self.dim / self.heads
        follow = {}
        if dim >= 1 and dim != self.dim:
            divisors = {part for i in range(1, isqrt(dim) + 1) if dim % i == 0 for part in (i, dim // i)}
            best = min(divisors, key=lambda size: (size % 8 > 0, abs(log(size / width)), size))
            follow = {"ffn": self.ffn * dim // self.dim, "heads": dim // best}
        return self._replace(**(follow | given))


def preset_sizes(
    layers: Layers,
    backbone: str,
    presets: Mapping[str, Sizes],
    rotary: bool = False,
    *,
    variant: str | None = None,
    dim: int | None = None,
    depth: int | None = None,
    heads: int | None = None,
    head_dim: int | None = None,
    ffn: int | None = None,
    dropout: float | None = None,
) -> Sizes:
    """Return the sizes of a preset, by default the first, with the given sizes replaced, see `Sizes.resize`.

    Args:
        backbone: Name for messages.
        variant: Name of a preset; the other arguments override its sizes.
        dim: Channels of the residual stream.
        depth: Number of blocks, both of an encoder and of a decoder.
        heads: Attention heads; by default as many as keep the preset's channels of a head.
        head_dim: Channels of a head, whole algebra elements; by default dim / heads.
        ffn: Hidden channels of the feed-forward networks; by default the preset's ratio to dim, which is 4 in all presets.
        dropout: Dropout probability everywhere.
    """
    chosen = variant or next(iter(presets))
    check_choice("preset", f"{backbone}/{chosen}", (f"{backbone}/{name}" for name in presets))
    given = {"dim": dim, "depth": depth, "heads": heads, "head_dim": head_dim, "ffn": ffn, "dropout": dropout}
    sizes = presets[chosen].resize(**{name: value for name, value in given.items() if value is not None})
    smallest = min(("dim", "depth", "heads", "ffn"), key=lambda name: getattr(sizes, name))
    if getattr(sizes, smallest) < 1:
        raise InputError(f"{smallest}={getattr(sizes, smallest)}: must be at least 1")
    named = f"{backbone}/{variant}" if variant else backbone
    check_heads(sizes.dim, sizes.heads, layers.over("attention").n, rotary, named, sizes.head_dim)
    return sizes


class Block(nn.Module):
    """Self-attention, optional cross-attention and a feed-forward network, each with a residual: [B, L, dim] to [B, L, dim].

    The norm precedes each part, as in Tensor2Tensor. With ``relative`` self-attention is `zoo.nn.RelativeAttention`, with a
    memory and without ``score``.
    """

    def __init__(
        self,
        layers: Layers,
        sizes: Sizes,
        *,
        score: str | None = None,
        rotary: bool = False,
        relative: bool = False,
        norm: str = "layer",
        activation: str = "relu",
        bias: bool = True,
        gain: float = 1.0,
        cross: bool = False,
    ) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        dim, heads, ffn, dropout = sizes.dim, sizes.heads, sizes.ffn, sizes.dropout
        options: dict[str, Any] = {"dropout": dropout, "bias": bias, "gain": gain, "head_dim": sizes.head_dim}
        self.relative = relative
        if relative:
            self.attention: nn.Module = layers.relative_attention(dim, heads, **options)
        else:
            self.attention = layers.attention(dim, heads, score=score, rotary=rotary, **options)
        self.cross_attention = layers.attention(dim, heads, score=score, cross=True, **options) if cross else None
        self.ffn = nn.Sequential(
            layers.linear(dim, ffn, bias, role="ffn"),
            ACTIVATIONS[activation](),
            nn.Dropout(dropout),
            layers.linear(ffn, dim, bias, role="ffn", gain=gain),
        )
        self.norms = nn.ModuleList(layers.norm(dim, norm, bias) for _ in range(3 if cross else 2))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        memory: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Apply the block; masks are False at padding, and ``mask`` includes cached tokens.

        ``source``, [B, S, dim], is the output of the encoder, ``memory``, [B, M, dim], the previous inputs of this block.
        """

        def self_attention(y: Tensor) -> Any:
            if self.relative:
                return self.attention(y, None if memory is None else self.norms[0](memory), mask, cache=cache)
            return self.attention(y, mask=mask, causal=causal, position_ids=position_ids, cache=cache)

        parts: list[Callable[[Tensor], Any]] = [self_attention, self.ffn]
        if (attend := self.cross_attention) is not None:
            parts.insert(1, lambda y: attend(y, source, source_mask, cache=cache))
        for norm, part in zip(self.norms, parts, strict=True):
            x = x + self.dropout(part(normalize(norm, x, mask)))
        return x


def check_causal_norm(norm: str) -> None:
    """Raise `InputError` for batch norm, whose statistics include later tokens, in a causal network."""
    if norm.startswith("batch"):
        raise InputError(f"norm={norm} is not causal: use layer, rms or element")


def normalize(norm: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a norm to features [B, L, C]; batch norm also reads the mask [B, L], False at padding."""
    y: Tensor = norm(x, mask) if isinstance(norm, TokenBatchNorm) else norm(x)
    return y


class LMHead(nn.Module):
    """Map features [..., dim] to logits [..., V], with the embedding table or with a layer.

    If ``tied``, it uses the table of the token embedding, if that has one (Press & Wolf 2017). With ``mask_special`` the logits
    of padding and the unknown token are -10^4.
    """

    def __init__(
        self,
        layers: Layers,
        token_embedding: TokenEmbedding,
        dim: int,
        vocab_size: int,
        tied: bool = True,
        mask_special: bool = False,
    ) -> None:
        super().__init__()
        self.masked = UNKNOWN + 1 if mask_special else 0
        self.tied = tied and getattr(token_embedding.embedding, "can_be_tied", False)
        self.layer = None if self.tied else layers.linear(dim, vocab_size, False, role="head")

    def forward(self, x: Tensor, token_embedding: TokenEmbedding) -> Tensor:
        """Return the logits: [..., dim] to [..., V]."""
        embedding: Any = token_embedding.embedding
        y: Tensor = embedding.logits(x) if self.layer is None else self.layer(x)
        if self.masked:
            y = torch.cat([y.new_full((*y.shape[:-1], self.masked), -1e4), y[..., self.masked :]], -1)
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

    def _decode(
        self, tokens: Tensor, mask: Tensor | None = None, position_ids: Tensor | None = None, **options: object
    ) -> Tensor:
        x = self.token_embedding(tokens, position_ids)
        for block in self.blocks:
            x = block(x, mask, causal=True, position_ids=position_ids, **options)
        return self.logits(x)

    def logits(self, x: Tensor) -> Tensor:
        """Apply the last norm and the head: [B, L, dim] to [B, L, V]."""
        y: Tensor = self.lm_head(self.norm(x), self.token_embedding)
        return y
