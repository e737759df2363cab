"""Prompts, the interface of a network that generates, the logits of its next token, and processors that change them.

The processors are pure functions from logits [B, V] to logits, -inf where a token must not be chosen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.text.tokens import BEGIN, PAD, UNKNOWN
from zoo.errors import InputError

DEFAULT_LENGTH = 256
"""Tokens that are generated if nobody says how many."""


@dataclass(frozen=True)
class Prompts:
    """Tokens to go on from, and what belongs to them.

    Args:
        tokens: int64 [B, L].
        mask: bool [B, L], False at padding on the left of shorter prompts; None if there is none.
        source: Texts to answer, int64 [B, S], padded on the right; None if there are none.
        end: The token that ends a text; None if there is no such token.
        rows: The numbers of the rows, which what is drawn depends on; 0, 1, ... by default.

    Raises:
        InputError: If a prompt is empty, or padded on the right.
    """

    tokens: Tensor
    mask: Tensor | None = None
    source: Tensor | None = None
    end: int | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not self.tokens.shape[1]:
            raise InputError("an empty prompt: give at least one token to begin with")
        if self.mask is not None and not bool(self.mask[:, -1].all()):
            raise InputError("a prompt that is empty or ends with padding: give each at least one token, padded on the left")

    def to(self, device: torch.device) -> Self:
        """Move the tensors to a device."""
        parts = ((name, getattr(self, name)) for name in ("tokens", "mask", "source"))
        return replace(self, **{name: part.to(device) for name, part in parts if part is not None})

    def seen(self, vocabulary: int) -> Tensor:
        """Return which tokens are in each prompt, bool [B, vocabulary]."""
        tokens = self.tokens if self.mask is None else self.tokens.masked_fill(~self.mask, PAD)
        return tokens.new_zeros(len(tokens), vocabulary, dtype=torch.bool).scatter_(1, tokens, True)

    def max_new_tokens(self, max_length: int | None, wanted: int | None) -> int:
        """Return how many tokens to generate: as many as wanted, or else as a network has positions for, up to 256.

        Raises:
            InputError: If they do not fit into its ``max_length`` positions.

        Example:
            >>> prompt = Prompts(torch.ones(1, 60, dtype=torch.int64))
            >>> prompt.max_new_tokens(128, None), prompt.max_new_tokens(None, None)
            (68, 256)
        """
        length = self.tokens.shape[1]
        left = math.inf if max_length is None else max_length - length
        room = f"this network has positions for {max_length}"
        if left < 1:
            raise InputError(f"a prompt of {length} tokens: {room}; use a shorter prompt")
        if wanted is not None and wanted > left:
            raise InputError(f"a prompt of {length} tokens and {wanted} more: {room}; use --length {left} or a shorter prompt")
        return int(min(left, DEFAULT_LENGTH)) if wanted is None else wanted


class KVCache(Protocol):
    """The memory that a network has of the texts so far.

    Attributes:
        length: Tokens read so far.
    """

    length: int

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, int64 [R], of which any may come more than once."""


Memory = TypeVar("Memory", bound=KVCache)


class Network(Protocol[Memory]):
    """A network that generates; put it into evaluation mode before.

    Attributes:
        max_length: Positions it has; None if there is no limit.
    """

    max_length: int | None

    def init_cache(self, source: Tensor | None = None) -> Memory:
        """Return an empty cache; ``source`` [B, S], padded on the right, are the texts to answer, if there are any."""

    def decode_step(self, tokens: Tensor, cache: Memory, mask: Tensor | None = None) -> Tensor:
        """Read the next tokens of every row, [B, l], add them to the cache, and return the logits behind each, [B, l, V].

        ``mask`` is bool [B, l], False at padding on the left of the first tokens; None if there is none.
        """


def next_logits(net: Network[Memory], tokens: Tensor, cache: Memory, end: int | None, mask: Tensor | None = None) -> Tensor:
    """Read more tokens [B, l] and return the logits of the token behind the last, float32 [B, V]; refuse what is not finite."""
    logits = forbid_special(net.decode_step(tokens, cache, mask)[:, -1].float(), end)
    if not bool(logits.amax(-1).isfinite().all()):
        raise InputError("the network answers with what is no finite number: its training has diverged; train it again")
    return logits


# --- logits processors ---


def forbid_special(logits: Tensor, end: int | None) -> Tensor:
    """Forbid padding, the unknown token and, where a token ends texts, the one that begins them."""
    logits = logits.clone()
    logits[:, [PAD, UNKNOWN] if end is None else [PAD, UNKNOWN, BEGIN]] = -math.inf
    return logits


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens less likely that are in the text already, ``seen`` bool [B, V] (Keskar et al. 2019, section 4.1).

    Their logits are divided by the penalty if positive, and multiplied by it if negative; 1 changes nothing.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def temperature_scaled(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature; the largest becomes 0, and 1e-6 is the lowest, so that no quotient is undefined."""
    return (logits - logits.amax(-1, keepdim=True)) / max(temperature, 1e-6)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits of every row; of equal ones, those of the lowest numbers."""
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[:, k:], -math.inf)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest tokens whose probabilities sum up to p, at least one (Holtzman et al. 2020, Eqs. 2 and 3)."""
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.float().softmax(-1).cumsum(-1)
    dropped = F.pad(mass[:, :-1], (1, 0)) >= p
    return logits.masked_fill(dropped.scatter(-1, order, dropped), -math.inf)
