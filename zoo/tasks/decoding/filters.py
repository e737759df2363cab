"""What may be written next, and how likely: pure functions from logits [B, V] to logits, -inf where nothing may be."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.text.tokens import BEGIN, PAD, UNKNOWN


def allowed(logits: Tensor, end: int | None) -> Tensor:
    """Forbid what is no text: padding, unknown words, and the beginning of a text.

    Args:
        logits: [B, V].
        end: The token that ends a text; without one, the vocabulary has no token for the beginning either.
    """
    logits = logits.clone()
    logits[:, [PAD, UNKNOWN] if end is None else [PAD, UNKNOWN, BEGIN]] = -math.inf
    return logits


def penalized(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make words less likely that stand there already (Keskar et al. 2019, section 4.1).

    Args:
        logits: [B, V]; of the words seen, positive ones are divided by the penalty, negative ones multiplied by it.
        seen: bool [B, V].
        penalty: 1 changes nothing.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature; the largest becomes 0, and 1e-6 is the lowest, so that no quotient is undefined."""
    return (logits - logits.amax(-1, keepdim=True)) / max(temperature, 1e-6)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits of every row; of equal ones, those of the lowest numbers."""
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[:, k:], -math.inf)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest words whose probabilities sum up to p, at least one (Holtzman et al. 2020, Eqs. 2 and 3)."""
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.float().softmax(-1).cumsum(-1)
    dropped = F.pad(mass[:, :-1], (1, 0)) >= p
    return logits.masked_fill(dropped.scatter(-1, order, dropped), -math.inf)


def seen_in(tokens: Tensor, mask: Tensor | None, vocabulary: int) -> Tensor:
    """Return which words texts have: bool [B, vocabulary] for tokens [B, L] and their mask, False at padding."""
    tokens = tokens if mask is None else tokens.masked_fill(~mask, PAD)
    return tokens.new_zeros(len(tokens), vocabulary, dtype=torch.bool).scatter_(1, tokens, True)
