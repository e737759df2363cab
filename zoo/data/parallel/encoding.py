"""Turning sources and targets into the token numbers that a network reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from zoo.data.loader import Array
from zoo.data.parallel.pairs import Pairs
from zoo.data.text.tokenizer import Tokenizer
from zoo.data.text.tokens import BEGIN, END, UNKNOWN, Tokens

Encoded = tuple[Tokens, Tokens]
"""The sources and the targets of a split, every one with the token that ends it."""


def encode(texts: Sequence[str], tokenizer: Tokenizer, location: Callable[[int], str] = "text {}".format) -> Tokens:
    """Turn texts into tokens, each with [EOS] behind it, which counts towards the limit of the tokenizer.

    Args:
        texts: Any number of texts.
        tokenizer: One with the tokens that begin and end a text.
        location: Names the place that text i comes from, for messages.

    Raises:
        InputError: A text has no tokens, or more than the model reads and is not to be cut.

    Example:
        >>> from zoo.data.text.tokenizer import train_tokenizer
        >>> tokenizer = train_tokenizer("space", ["a b c"], 9, False, 1, ends=True).limited(3, truncation=True)
        >>> encode(["a b c", "b [EOS]"], tokenizer).padded()
        tensor([[4, 5, 3],
                [5, 1, 3]])
    """
    limit = None if tokenizer.max_length is None else tokenizer.max_length - 1
    tokens = tokenizer.limited(limit, truncation=tokenizer.truncation).encode(texts, location)
    inside = np.where((tokens.flat == BEGIN) | (tokens.flat == END), np.int32(UNKNOWN), tokens.flat)  # "[EOS]" in a text
    ended = Tokens([])
    ended.flat = np.insert(inside, tokens.offsets[1:], END)
    ended.offsets = tokens.offsets + np.arange(len(tokens.offsets))
    return ended


def encode_pairs(pairs: Pairs, tokenizer: Tokenizer) -> Encoded:
    """Encode both sides of pairs.

    Raises:
        InputError: A text has no tokens, or too many; the message says where it stands.
    """
    sides = (pairs.sources, pairs.targets)
    source, target = (encode(texts, tokenizer, partial(pairs.place, side=side)) for side, texts in enumerate(sides))
    return source, target


def encode_whole(pairs: Pairs, tokenizer: Tokenizer) -> tuple[Pairs, Encoded]:
    """Encode pairs and leave out those of which a side is longer than the limit of the tokenizer, as Tensor2Tensor does.

    Returns:
        The pairs that stay, and their tokens.
    """
    tokens = encode_pairs(pairs, tokenizer.limited(None))
    if tokenizer.max_length is None:
        return pairs, tokens
    short = np.flatnonzero(lengths(tokens) <= tokenizer.max_length).tolist()
    if len(short) == len(pairs):
        return pairs, tokens
    source, target = (Tokens(side[row] for row in short) for side in tokens)
    return pairs.take(short), (source, target)


def lengths(tokens: Encoded) -> Array:
    """Return the tokens of the longer side of every pair, int64 [N]."""
    longest: Array = np.maximum(tokens[0].lengths, tokens[1].lengths)
    return longest
