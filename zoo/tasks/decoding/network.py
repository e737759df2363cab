"""What decoding needs of a network: it begins with a memory, reads on, and tells what comes next."""

from typing import Protocol, TypeVar

from torch import Tensor

from zoo.errors import InputError
from zoo.tasks.decoding.filters import allowed

LONGEST = 256
"""Tokens that are written if nobody says how many."""


class KVCache(Protocol):
    """What a network remembers of the texts so far.

    Attributes:
        length: Tokens read so far.
    """

    length: int

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, int64 [R], of which any may come more than once."""


Memory = TypeVar("Memory", bound=KVCache)


class Network(Protocol[Memory]):
    """A network that writes; put it into evaluation mode before.

    Attributes:
        max_length: Positions it has; None if there is no limit.
    """

    max_length: int | None

    def init_cache(self, source: Tensor | None = None) -> Memory:
        """Return the memory of texts that are to be written; ``source`` [B, S], padded on the right, is what they answer."""

    def decode_step(self, tokens: Tensor, cache: Memory, mask: Tensor | None = None) -> Tensor:
        """Read more tokens [B, l] and return the logits of what follows each, [B, l, V].

        Args:
            tokens: The next tokens of every row.
            cache: What was read before; these tokens are added.
            mask: bool [B, l], False at padding, which stands on the left of the first tokens; None if there is none.
        """


def read(net: Network[Memory], tokens: Tensor, cache: Memory, end: int | None, mask: Tensor | None = None) -> Tensor:
    """Read more tokens [B, l] and return the logits of what may be written behind the last, float32 [B, V].

    Raises:
        InputError: If the network answers with what is no number.
    """
    logits = allowed(net.decode_step(tokens, cache, mask)[:, -1].float(), end)
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


def tokens_to_write(max_length: int | None, prompt: int, wanted: int | None) -> int:
    """Return how many tokens to write behind a prompt: as many as wanted, or else as fit, up to 256.

    Args:
        max_length: Positions of the network; None if there is no limit.
        prompt: Tokens of the longest prompt.
        wanted: Tokens to write; None for as many as fit.

    Raises:
        InputError: If they do not fit into the network's positions.

    Example:
        >>> tokens_to_write(128, 60, None), tokens_to_write(None, 60, None)
        (68, 256)
    """
    if max_length is None:
        return LONGEST if wanted is None else wanted
    left = max_length - prompt
    if left < 1:
        raise InputError(f"a prompt of {prompt} tokens: this network has positions for {max_length}; use a shorter prompt")
    if wanted is not None and wanted > left:
        raise InputError(
            f"a prompt of {prompt} tokens and {wanted} more: this network has positions for {max_length}; "
            f"use --length {left} or a shorter prompt"
        )
    return min(left, LONGEST) if wanted is None else wanted
