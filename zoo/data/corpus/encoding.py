"""From running text to token numbers: learning a tokenizer, encoding without a limit, and the text behind every token."""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders

from zoo.data import cache
from zoo.data.corpus.source import Source
from zoo.data.loader import Array
from zoo.data.text.tokenizer import BYTES, SPECIAL, Tokenizer, train_tokenizer
from zoo.data.text.tokens import PAD, UNKNOWN
from zoo.errors import InputError, one_line

TOKENIZERS = ("char", "bpe")  # tokenizers that lose nothing of a text: what they write can be read
RULE = b"1"  # number of the way in which text becomes tokens; a new one makes new files in the cache
POINTS = 0x110000
TWICE = 2  # a pair of tokens that occurs once is no word

Numbers = Array | cache.MappedArray


def learn(kind: str, pieces: Iterable[str], vocab: int, lowercase: bool) -> Tokenizer:
    """Train a tokenizer as `train_tokenizer` does, for text that runs on; characters are counted many times as fast."""
    if kind == "bpe":
        bare = vocab == UNKNOWN + 1 + BYTES  # leaves no room for merges: nothing can be learnt
        return train_tokenizer("bpe", () if bare else pieces, vocab, lowercase, TWICE, running=True)
    blank = train_tokenizer("char", [], vocab, lowercase, 1)
    counts = np.zeros(POINTS, dtype=np.int64)
    for piece in pieces:
        counts += np.bincount(_points(blank.backend.normalizer.normalize_str(piece)), minlength=POINTS)
    occurring = np.flatnonzero(counts)
    frequent = occurring[np.argsort(-counts[occurring], kind="stable")][: vocab - UNKNOWN - 1]
    state = json.loads(blank.to_json())
    state["model"]["vocab"] = {token: i for i, token in enumerate([*SPECIAL[: UNKNOWN + 1], *map(chr, frequent.tolist())])}
    return replace(blank, backend=type(blank.backend).from_str(json.dumps(state)))


def read_tokenizer(name: str) -> Tokenizer:
    """Read the ``tokenizer.json`` of a trained model; `InputError` if it is none, or loses something of a text."""
    try:
        tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(Path(name).expanduser().read_text(encoding="utf-8")))
    except Exception as error:  # The library raises Exception itself.
        raise InputError(f"tokenizer={name!r}: it cannot be read ({one_line(error, 120)})") from error
    numbers = [tokenizer.backend.token_to_id(token) for token in SPECIAL[: UNKNOWN + 1]]
    if numbers != [PAD, UNKNOWN] or tokenizer.backend.decoder is None:
        raise InputError(f"tokenizer={name!r}: running text is read by a tokenizer.json of a language model of the zoo")
    return tokenizer


def _points(text: str) -> Array:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def number_type(tokenizer: Tokenizer) -> str:
    """Return the smallest type of numbers that all tokens fit."""
    return "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"


def encoder(tokenizer: Tokenizer) -> Callable[[str], Array]:
    """Return what turns pieces of running text into tokens: the same ones as the tokenizer's own, but without a limit."""
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
    return lambda piece: table[_points(normalizer.normalize_str(piece))]


def tokens_of(source: Source, sha256: str, tokenizer: Tokenizer) -> Numbers:
    """Return the token numbers of a text with this digest; those of a large one lie in a mapped file of the user's cache."""
    kind, encode = number_type(tokenizer), encoder(tokenizer)
    name = hashlib.sha256(b"\0".join([RULE, sha256.encode(), tokenizer.to_json().encode("utf-8")])).hexdigest()
    path = cache.folder("tokens") / f"{name}.{kind[1:]}"
    return cache.MappedArray(path, kind) if path.exists() else cache.concatenated(map(encode, source.pieces()), path, kind)


def extents(tokenizer: Tokenizer) -> Array:
    """Return how many characters and bytes (of UTF-8) every token stands for, int64 [V, 2], exact in sums over a text.

    A part of a character counts as the character if it is its first byte; padding counts nothing, an unknown token 1 and 1.
    """
    words = tokenizer.tokens
    if isinstance(tokenizer.backend.decoder, decoders.ByteLevel):
        starts = _starts()
        pairs = [(sum(letter in starts for letter in word), len(word)) for word in words]
    else:
        pairs = [(len(word), len(word.encode("utf-8"))) for word in words]
    pairs[PAD], pairs[UNKNOWN] = (0, 0), (1, 1)
    return np.array(pairs, dtype=np.int64)


def _starts() -> set[str]:
    """Return the letters by which a byte-level tokenizer writes the bytes that begin a character."""
    # Bytes that Latin-1 can print stand for themselves, and the others, in their order, for the letters from 256 on.
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printed]
    letters = {byte: chr(byte) for byte in printed} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
    return {letter for byte, letter in letters.items() if byte & 0xC0 != 0x80}
