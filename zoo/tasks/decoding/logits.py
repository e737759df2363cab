"""The interface of a network that generates, the logits of its next token, and what may change them: logits processors.

The processors are pure functions from logits [B, V] to logits, -inf where a token must not be chosen.
"""

import math
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.text.tokens import BEGIN, PAD, UNKNOWN
from zoo.errors import InputError

DEFAULT_LENGTH = 256
"""Tokens that are generated if nobody says how many."""


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
        """Read more tokens [B, l] and return the logits of what follows each, [B, l, V].

        Args:
            tokens: The next tokens of every row.
            cache: Of the tokens before; these tokens are added.
            mask: bool [B, l], False at padding, which stands on the left of the first tokens; None if there is none.
        """


def next_logits(net: Network[Memory], tokens: Tensor, cache: Memory, end: int | None, mask: Tensor | None = None) -> Tensor:
    """Read more tokens [B, l] and return the logits of the token behind the last, float32 [B, V].

    Raises:
        InputError: If a logit is not finite.
    """
    logits = forbid_special(net.decode_step(tokens, cache, mask)[:, -1].float(), end)
    if not bool(logits.amax(-1).isfinite().all()):
        raise InputError("the network answers with what is no finite number: its training has diverged; train it again")
    return logits


def check_prompts(prompts: Tensor, mask: Tensor | None) -> None:
    """Check that every prompt [B, L] ends with a token of its own.

    Raises:
        InputError: If a prompt is empty, or padded on the right.
    """
    if not prompts.shape[1]:
        raise InputError("an empty prompt: give at least one token to begin with")
    if mask is not None and not bool(mask[:, -1].all()):
        raise InputError("a prompt that is empty or ends with padding: give each at least one token, padded on the left")


def max_new_tokens(max_length: int | None, prompt: int, wanted: int | None) -> int:
    """Return how many tokens to generate behind a prompt: as many as wanted, or else as fit, up to 256.

    Args:
        max_length: Positions of the network; None if there is no limit.
        prompt: Tokens of the longest prompt.
        wanted: Tokens to generate; None for as many as fit.

    Raises:
        InputError: If they do not fit into the network's positions.

    Example:
        >>> max_new_tokens(128, 60, None), max_new_tokens(None, 60, None)
        (68, 256)
    """
    if max_length is None:
        return DEFAULT_LENGTH if wanted is None else wanted
    left = max_length - prompt
    if left < 1:
        raise InputError(f"a prompt of {prompt} tokens: this network has positions for {max_length}; use a shorter prompt")
    if wanted is not None and wanted > left:
        raise InputError(
            f"a prompt of {prompt} tokens and {wanted} more: this network has positions for {max_length}; "
            f"use --length {left} or a shorter prompt"
        )
    return min(left, DEFAULT_LENGTH) if wanted is None else wanted


# --- logits processors ---


def forbid_special(logits: Tensor, end: int | None) -> Tensor:
    """Forbid tokens that are no text: padding, the unknown token and the beginning of a text.

    Args:
        logits: [B, V].
        end: The token that ends a text; without one, the vocabulary has no token for the beginning either.
    """
    logits = logits.clone()
    logits[:, [PAD, UNKNOWN] if end is None else [PAD, UNKNOWN, BEGIN]] = -math.inf
    return logits


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make tokens less likely that are in the text already (Keskar et al. 2019, section 4.1).

    Args:
        logits: [B, V]; of the tokens seen, positive ones are divided by the penalty, negative ones multiplied by it.
        seen: bool [B, V].
        penalty: 1 changes nothing.
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


def seen_tokens(tokens: Tensor, mask: Tensor | None, vocabulary: int) -> Tensor:
    """Return which tokens texts have: bool [B, vocabulary] for tokens [B, L] and their mask, False at padding."""
    tokens = tokens if mask is None else tokens.masked_fill(~mask, PAD)
    return tokens.new_zeros(len(tokens), vocabulary, dtype=torch.bool).scatter_(1, tokens, True)
