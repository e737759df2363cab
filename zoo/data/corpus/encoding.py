"""From running text to token numbers, and how much text every token stands for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zoo.data.corpus.alphabet import POINTS, points
from zoo.data.loader import Array
from zoo.data.text.tokenizer import Tokenizer
from zoo.data.text.tokens import PAD, UNKNOWN
from zoo.errors import InputError

Encoder = Callable[[str], Array]
"""Turns a piece of text into token numbers, [N]."""


def number_type(tokenizer: Tokenizer) -> str:
    """Return the smallest type of numbers that all tokens fit."""
    return "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"


def encoder(tokenizer: Tokenizer) -> Encoder:
    """Return what turns pieces of running text into tokens: the same ones as the tokenizer's own, but without a limit.

    Raises:
        InputError: The tokenizer leaves out white space.
    """
    from tokenizers import decoders

    kind, backend = number_type(tokenizer), tokenizer.backend
    if isinstance(backend.decoder, decoders.ByteLevel):

        def merged(piece: str) -> Array:
            numbers = np.asarray(backend.encode_batch_fast([piece], add_special_tokens=False)[0].ids, dtype=kind)
            return np.where(numbers == PAD, numbers.dtype.type(UNKNOWN), numbers)  # "[PAD]" in a text is no padding

        return merged
    if not isinstance(backend.decoder, decoders.Fuse):
        raise InputError("the model reads single words and no running text: measure it on texts of its own kind")
    table = np.full(POINTS, UNKNOWN, dtype=kind)
    for number, word in enumerate(tokenizer.tokens):
        if len(word) == 1:
            table[ord(word)] = number
    normalizer = backend.normalizer
    return lambda piece: table[points(normalizer.normalize_str(piece))]


def extents(tokenizer: Tokenizer) -> Array:
    """Return how many characters and bytes (of UTF-8) every token stands for, int64 [V, 2].

    A part of a character counts as the character if it is its first byte, so that sums over a text are exact. Padding counts
    nothing, and an unknown token one of both.

    Example:
        >>> from zoo.data.corpus.alphabet import learn
        >>> extents(learn("char", ["aé"], 9, False)).tolist()
        [[0, 0], [1, 1], [1, 1], [1, 2]]
    """
    from tokenizers import decoders

    words = tokenizer.tokens
    if isinstance(tokenizer.backend.decoder, decoders.ByteLevel):
        starts = _starts()
        made = [(sum(letter in starts for letter in word), len(word)) for word in words]
    else:
        made = [(len(word), len(word.encode("utf-8"))) for word in words]
    made[PAD], made[UNKNOWN] = (0, 0), (1, 1)
    return np.array(made, dtype=np.int64)


def _starts() -> set[str]:
    """Return the letters by which a byte-level tokenizer writes the bytes that begin a character.

    Bytes that Latin-1 can print stand for themselves, and the others, in their order, for the letters from 256 on.
    """
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printed]
    letters = {byte: chr(byte) for byte in printed} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
    return {letter for byte, letter in letters.items() if byte & 0xC0 != 0x80}
