"""Prompts and logits processors.

Logits processors are pure functions from logits [B, V] to logits, -inf for tokens that must not be chosen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.backbones.generative import GenerativeModel
from zoo.data.text.tokens import BEGIN, PAD, UNKNOWN
from zoo.errors import InputError
from zoo.layers.kv_cache import KVCache

DEFAULT_LENGTH = 256
"""Maximum number of tokens to generate by default."""


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts.

    Args:
        tokens: int64 [B, L].
        mask: bool [B, L], False at padding, which is on the left; None without padding.
        source: Texts to answer, int64 [B, S], padded on the right; None for language models.
        end: The token that ends a text; None if there is no such token.
        rows: Row numbers, on which samples depend; by default 0, 1, ...

    Raises:
        InputError: If a prompt is empty, or padded on the right.
    """

    tokens: Tensor
    mask: Tensor | None = None
    source: Tensor | None = None
    end: int | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not self.tokens.shape[1] or not (self.mask is None or bool(self.mask[:, -1].all())):
            raise InputError("empty prompt: use at least one token, and padding on the left")

    def to(self, device: torch.device) -> Self:
        """Move the tensors to a device."""
        parts = ((name, getattr(self, name)) for name in ("tokens", "mask", "source"))
        return replace(self, **{name: part.to(device) for name, part in parts if part is not None})

    def seen(self, vocab_size: int) -> Tensor:
        """Return a mask of the tokens in each prompt, bool [B, vocab_size]."""
        tokens = self.tokens if self.mask is None else self.tokens.masked_fill(~self.mask, PAD)
        return tokens.new_zeros(len(tokens), vocab_size, dtype=torch.bool).scatter_(1, tokens, True)

    def max_new_tokens(self, max_length: int | None, requested: int | None) -> int:
        """Return the maximum number of tokens to generate: as requested, or what fits into ``max_length``, up to 256.

        Raises:
            InputError: If prompt and requested tokens exceed ``max_length``.

        Example:
            >>> prompt = Prompts(torch.ones(1, 60, dtype=torch.int64))
            >>> prompt.max_new_tokens(128, None), prompt.max_new_tokens(None, None)
            (68, 256)
        """
        length = self.tokens.shape[1]
        available = math.inf if max_length is None else max_length - length
        limit = f"exceeds max_length={max_length} of this network"
        if available < 1:
            raise InputError(f"a prompt of {length} tokens plus one {limit}: use a shorter prompt")
        if requested is not None and requested > available:
            text = f"a prompt of {length} tokens plus length={requested} {limit}"
            raise InputError(f"{text}: use --length {available} or a shorter prompt")
        return int(min(available, DEFAULT_LENGTH)) if requested is None else requested


def next_logits(net: GenerativeModel, tokens: Tensor, cache: KVCache, end: int | None, mask: Tensor | None = None) -> Tensor:
    """Read tokens [B, l] and return the logits of the next token, float32 [B, V]; raise `InputError` for NaN and infinity."""
    logits = forbid_special(net.decode_step(tokens, cache, mask)[:, -1].float(), end)
    if not bool(logits.amax(-1).isfinite().all()):
        raise InputError("the network returns NaN or infinity: its training diverged; train it again")
    return logits


# --- logits processors ---


def forbid_special(logits: Tensor, end: int | None) -> Tensor:
    """Forbid padding, the unknown token and, if there is an end token, the begin token."""
    logits = logits.clone()
    logits[:, [PAD, UNKNOWN] if end is None else [PAD, UNKNOWN, BEGIN]] = -math.inf
    return logits


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Penalize tokens that already occur, ``seen`` bool [B, V] (Keskar et al. 2019, section 4.1).

    Divides positive logits by the penalty and multiplies negative ones by it.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def temperature_scaled(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature of at least 1e-6, after subtracting the largest, to avoid overflow."""
    return (logits - logits.amax(-1, keepdim=True)) / max(temperature, 1e-6)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits of every row; ties are resolved in favour of lower token ids."""
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[:, k:], -math.inf)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of most probable tokens with a total probability of at least p (Holtzman et al. 2020, Eqs. 2-3)."""
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.float().softmax(-1).cumsum(-1)
    dropped = F.pad(mass[:, :-1], (1, 0)) >= p
    return logits.masked_fill(dropped.scatter(-1, order, dropped), -math.inf)
