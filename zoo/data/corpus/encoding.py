"""Train tokenizers of running text, encode it without a length limit, and count the characters of every token."""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders

from zoo.atomic import new_file
from zoo.data.corpus.source import Text
from zoo.data.loader import Array
from zoo.data.text.tokenizer import BYTES, SPECIAL, Tokenizer, train_tokenizer
from zoo.data.text.tokens import PAD, UNKNOWN
from zoo.errors import InputError, one_line
from zoo.registry.home import home

LOSSLESS = ("char", "bpe")  # the tokenizers whose output is readable text
CACHE_VERSION = b"1"  # a change of the encoding must change it, so that cached files are not reused
CODE_POINTS = 0x110000
MIN_COUNT = 2  # pairs of tokens that occur once are not merged
LARGE = 2**23  # characters of a text whose tokens are cached


def train_corpus_tokenizer(kind: str, pieces: Iterable[str], vocab: int, lowercase: bool) -> Tokenizer:
    """Train a tokenizer on running text, as `train_tokenizer` does on texts; characters are counted many times faster."""
    if kind == "bpe":
        no_merges = vocab == UNKNOWN + 1 + BYTES  # nothing to train
        return train_tokenizer("bpe", () if no_merges else pieces, vocab, lowercase, MIN_COUNT, running=True)
    blank = train_tokenizer("char", [], vocab, lowercase, 1)
    counts = np.zeros(CODE_POINTS, dtype=np.int64)
    for piece in pieces:
        counts += np.bincount(_code_points(blank.backend.normalizer.normalize_str(piece)), minlength=CODE_POINTS)
    occurring = np.flatnonzero(counts)
    frequent = occurring[np.argsort(-counts[occurring], kind="stable")][: vocab - UNKNOWN - 1]
    state = json.loads(blank.to_json())
    state["model"]["vocab"] = {token: i for i, token in enumerate([*SPECIAL[: UNKNOWN + 1], *map(chr, frequent.tolist())])}
    return replace(blank, backend=type(blank.backend).from_str(json.dumps(state)))


def read_tokenizer(name: str) -> Tokenizer:
    """Read the ``tokenizer.json`` of a language model; `InputError` if its output is not readable text."""
    try:
        tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(Path(name).expanduser().read_text(encoding="utf-8")))
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"tokenizer={name!r}: cannot be read ({one_line(error, 120)})") from error
    ids = [tokenizer.backend.token_to_id(token) for token in SPECIAL[: UNKNOWN + 1]]
    if ids != [PAD, UNKNOWN] or tokenizer.backend.decoder is None:
        raise InputError(f"tokenizer={name!r}: not the tokenizer.json of a language model of the zoo")
    return tokenizer


def _code_points(text: str) -> Array:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def token_dtype(tokenizer: Tokenizer) -> str:
    """Return the smallest dtype for the token ids."""
    return "<u2" if tokenizer.vocab_size <= 2**16 else "<u4"


def encoder(tokenizer: Tokenizer) -> Callable[[str], Array]:
    """Return a function that encodes pieces of running text as the tokenizer does, but without a length limit."""
    dtype, backend = token_dtype(tokenizer), tokenizer.backend
    if isinstance(backend.decoder, decoders.ByteLevel):

        def encode(piece: str) -> Array:
            ids = np.asarray(backend.encode_batch_fast([piece], add_special_tokens=False)[0].ids, dtype=dtype)
            return np.where(ids == PAD, ids.dtype.type(UNKNOWN), ids)  # a literal "[PAD]" in the text

        return encode
    if not isinstance(backend.decoder, decoders.Fuse):
        raise InputError(
            "the model's tokenizer splits words and cannot read running text; use data of the kind it was trained on"
        )
    table = np.full(CODE_POINTS, UNKNOWN, dtype=dtype)
    for number, token in enumerate(tokenizer.tokens):
        if len(token) == 1:
            table[ord(token)] = number
    normalizer = backend.normalizer
    return lambda piece: table[_code_points(normalizer.normalize_str(piece))]


def encode_text(text: Text, tokenizer: Tokenizer) -> Array:
    """Return the token ids of a text; those of a large text are a mapped file in the user's cache."""
    dtype, encode = token_dtype(tokenizer), encoder(tokenizer)
    if len(text.content) <= LARGE:
        return np.concatenate([np.empty(0, dtype), *map(encode, text.pieces())])
    name = hashlib.sha256(b"\0".join([CACHE_VERSION, text.digest().encode(), tokenizer.to_json().encode("utf-8")])).hexdigest()
    path = home() / "tokens" / f"{name}.{dtype[1:]}"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as file:
                for piece in text.pieces():
                    file.write(encode(piece).tobytes())
        return np.asarray(np.memmap(path, dtype, mode="r"))
    except OSError as error:
        message = f"{path.parent}: cannot cache tokens ({error.strerror}); free space, or set ZOO_HOME to another folder"
        raise InputError(message, code="failed") from error


def token_sizes(tokenizer: Tokenizer) -> Array:
    """Return the number of characters and UTF-8 bytes of every token, int64 [V, 2], exact in sums over a text.

    A part of a character counts as the character if it contains its first byte; padding counts 0 and 0, unknown 1 and 1.
    """
    tokens = tokenizer.tokens
    if isinstance(tokenizer.backend.decoder, decoders.ByteLevel):
        first_bytes = _first_byte_letters()
        sizes = [(sum(letter in first_bytes for letter in token), len(token)) for token in tokens]
    else:
        sizes = [(len(token), len(token.encode("utf-8"))) for token in tokens]
    sizes[PAD], sizes[UNKNOWN] = (0, 0), (1, 1)
    return np.array(sizes, dtype=np.int64)


def _first_byte_letters() -> set[str]:
    """Return the letters that a byte-level tokenizer uses for the first bytes of characters."""
    # Printable bytes of Latin-1 are their own letters; the others are, in order, the letters from 256.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
    return {letter for byte, letter in letters.items() if byte & 0xC0 != 0x80}
