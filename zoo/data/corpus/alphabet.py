"""Training a tokenizer on running text of any size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from zoo.data.loader import Array
from zoo.data.text.tokenizer import BYTES, SPECIAL, Tokenizer, train_tokenizer
from zoo.data.text.tokens import UNKNOWN
from zoo.errors import InputError

KINDS = ("char", "bpe")
"""Tokenizers that lose nothing of a text: what they write can be read."""

POINTS = 0x110000
TWICE = 2  # a pair of tokens that occurs once is no word


def learn(kind: str, pieces: Iterable[str], vocab: int, lowercase: bool) -> Tokenizer:
    """Train a tokenizer as `train_tokenizer` does, for text that runs on; characters are counted many times as fast.

    Args:
        kind: `char` or `bpe`.
        pieces: The training text.
        vocab: Tokens at most.
        lowercase: Whether capitals are made small.

    Raises:
        InputError: The kind or a number is wrong.

    Example:
        >>> learn("char", ["to be, ", "or not"], 9, lowercase=True).tokens[3]
        'o'
    """
    if kind not in KINDS:
        raise InputError(f"tokenizer={kind!r}: running text is read by {' or '.join(KINDS)}")
    if kind == "bpe":
        bare = vocab == UNKNOWN + 1 + BYTES  # leaves no room for merges: nothing can be learnt
        return train_tokenizer("bpe", () if bare else pieces, vocab, lowercase, TWICE, running=True)
    blank = train_tokenizer("char", [], vocab, lowercase, 1)
    counts = np.zeros(POINTS, dtype=np.int64)
    for piece in pieces:
        counts += np.bincount(points(blank.backend.normalizer.normalize_str(piece)), minlength=POINTS)
    found = np.flatnonzero(counts)
    kept = found[np.argsort(-counts[found], kind="stable")][: vocab - UNKNOWN - 1]
    numbers = {token: number for number, token in enumerate([*SPECIAL[: UNKNOWN + 1], *map(chr, kept.tolist())])}
    return _with_vocabulary(blank, numbers)


def points(text: str) -> Array:
    """Return the code points of a text, uint32."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def _with_vocabulary(blank: Tokenizer, numbers: dict[str, int]) -> Tokenizer:
    state = json.loads(blank.to_json())
    state["model"]["vocab"] = numbers
    return replace(blank, backend=type(blank.backend).from_str(json.dumps(state)))
