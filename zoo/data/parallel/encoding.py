"""Turning sources and targets into the token numbers that a network reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from zoo.data.parallel.pairs import Pairs
from zoo.data.splits import Array
from zoo.data.text.encoding import LONGEST
from zoo.data.text.reader import Reader
from zoo.data.text.tokens import BEGIN, END, UNKNOWN, Tokens

Encoded = tuple[Tokens, Tokens]
"""The sources and the targets of a split, every one with the token that ends it."""


def encode(texts: Sequence[str], reader: Reader, place: Callable[[int], str] = "text {}".format) -> Tokens:
    """Turn texts into tokens, each with [EOS] behind it, which counts towards the most that the reader reads.

    Args:
        texts: Any number of texts.
        reader: Whose tokenizer has the tokens that begin and end a text.
        place: Says where text i stands, for messages.

    Raises:
        InputError: A text has no tokens, or more than the model reads and is not to be cut.

    Example:
        >>> from zoo.data.text.tokenizer import train_tokenizer
        >>> reader = Reader(train_tokenizer("space", ["a b c"], 9, False, 1, ends=True), 3, (), cut=True)
        >>> encode(["a b c", "b [EOS]"], reader).padded()
        tensor([[4, 5, 3],
                [5, 1, 3]])
    """
    tokens = replace(reader, max_length=reader.max_length - 1).encode(texts, place)
    inside = np.where((tokens.flat == BEGIN) | (tokens.flat == END), np.int32(UNKNOWN), tokens.flat)  # "[EOS]" in a text
    ended = Tokens([])
    ended.flat = np.insert(inside, tokens.offsets[1:], END)
    ended.offsets = tokens.offsets + np.arange(len(tokens.offsets))
    return ended


def encode_pairs(pairs: Pairs, reader: Reader) -> Encoded:
    """Encode both sides of pairs.

    Raises:
        InputError: A text has no tokens, or too many; the message says where it stands.
    """
    sides = (pairs.sources, pairs.targets)
    source, target = (encode(texts, reader, partial(pairs.place, side=side)) for side, texts in enumerate(sides))
    return source, target


def encode_whole(pairs: Pairs, reader: Reader) -> tuple[Pairs, Encoded]:
    """Encode pairs and leave out those of which a side is longer than the reader reads, as Tensor2Tensor does.

    Returns:
        The pairs that stay, and their tokens.
    """
    tokens = encode_pairs(pairs, replace(reader, max_length=LONGEST))
    short = np.flatnonzero(lengths(tokens) <= reader.max_length).tolist()
    if len(short) == len(pairs):
        return pairs, tokens
    source, target = (Tokens(side[row] for row in short) for side in tokens)
    return pairs.take(short), (source, target)


def lengths(tokens: Encoded) -> Array:
    """Return the tokens of the longer side of every pair, int64 [N]."""
    longest: Array = np.maximum(tokens[0].lengths, tokens[1].lengths)
    return longest
