"""One call for every way of writing."""

import torch
from torch import Tensor

from zoo.options import Decoding
from zoo.tasks.decoding.beam import beam_search
from zoo.tasks.decoding.network import Memory, Network
from zoo.tasks.decoding.sample import stream


def write(
    net: Network[Memory],
    prompts: Tensor,
    mask: Tensor | None = None,
    source: Tensor | None = None,
    options: Decoding | None = None,
    end: int | None = None,
) -> list[list[int]]:
    """Write a text behind each prompt and return its tokens, without the prompt and without the token that ends it.

    Args:
        net: What writes, in evaluation mode.
        prompts: Tokens to begin with, int64 [B, L].
        mask: bool [B, L], False at padding on the left of shorter prompts; None if there is none.
        source: Texts to answer, int64 [B, S], padded on the right; None if there are none.
        options: How to write; a beam of more than one is a beam search.
        end: The token that ends a text; None if there is no such token, and all texts have the same length.

    Raises:
        InputError: If an option is wrong, a prompt is empty, or the tokens do not fit into the network's positions.
    """
    options = options or Decoding()
    if not len(prompts):
        return []
    if options.beam > 1:
        found = beam_search(net, prompts, mask, source, options, end=end)
        return [_cut(texts[0].tokens, end) for texts in found]
    columns = list(stream(net, prompts, mask, source, options, end=end))
    return [_cut(text, end) for text in torch.stack(columns, 1).tolist()]


def _cut(tokens: list[int], end: int | None) -> list[int]:
    """Drop the first token that ends the text, and what follows."""
    return tokens[: tokens.index(end)] if end is not None and end in tokens else tokens
