"""Tokenizers that convert text to token ids and back, with the same vocabulary on every machine."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers
from tokenizers import decoders, pre_tokenizers, trainers

from zoo.data import tokenizer_file
from zoo.data.info import TokenInfo
from zoo.data.loader import Array
from zoo.data.options import DataError
from zoo.data.tokens import END, PAD, UNKNOWN, Ints, RaggedFile, Tokens
from zoo.errors import InputError, one_line

# One thread by default: the library warns about processes that are forked later, or hangs in them.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

TOKENIZERS = ("word", "space", "char", "bpe")
BYTES = 256
LONGEST = 2**22
"""Maximum number of characters of a text; the regular expression of the words fails on a word of ten million."""
CHUNK = 1000  # texts to encode at once: the library's encodings take a hundred times the memory of the ids
Location = Callable[[int], str]  # returns the location of text i for error messages


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Convert texts to the token ids that a model reads.

    Attributes:
        backend: The `tokenizers.Tokenizer`; id 0 is padding, id 1 an unknown token.
        max_length: Maximum number of tokens of a text; None for no limit.
        truncation: Whether longer texts are truncated to `max_length` tokens; otherwise they are an error.

    Example:
        >>> tokenizer = train_tokenizer("word", ["A good film.", "a bad film"], 9, True, 1).limited(4, truncation=True)
        >>> tokenizer.tokens
        ['[PAD]', '[UNK]', 'a', 'film', '.', 'bad', 'good']
        >>> tokenizer.encode(["A film so good, ..."]).padded()
        tensor([[2, 3, 1, 6]])
    """

    backend: tokenizers.Tokenizer
    max_length: int | None = None
    truncation: bool = False

    @classmethod
    def from_json(cls, text: str, info: TokenInfo, truncation: bool = False) -> Self:
        """Load the tokenizer of a saved model from its file and the info of its data."""
        backend = tokenizer_file.read(text, info.tokenizer)
        if (size := backend.get_vocab_size()) != info.vocab_size:
            raise InputError(f"{info.tokenizer}: {size} tokens, expected {info.vocab_size}; it belongs to another model")
        return cls(backend, info.max_length, truncation)

    def to_json(self) -> str:
        """Return the content of a tokenizer file."""
        return tokenizer_file.write(self.backend)

    def limited(self, max_length: int | None, *, truncation: bool = False) -> Self:
        """Return this tokenizer with another maximum length."""
        return replace(self, max_length=max_length, truncation=truncation)

    def shortened(self, max_length: int) -> Self:
        """Return this tokenizer truncating texts to `max_length` tokens, or to its own maximum length if that is less."""
        return self.limited(max_length if self.max_length is None else min(max_length, self.max_length), truncation=True)

    @property
    def vocab_size(self) -> int:
        """Vocabulary size, special tokens included."""
        return self.backend.get_vocab_size()

    @property
    def tokens(self) -> list[str]:
        """All tokens in the order of their ids."""
        vocabulary = self.backend.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    @property
    def has_end(self) -> bool:
        """Whether the vocabulary has the tokens [BOS] and [EOS] of generated texts."""
        return self.backend.token_to_id(tokenizer_file.SPECIAL[END]) == END

    def decode(self, ids: Sequence[int] | Ints) -> str:
        """Convert token ids to text, up to the first [EOS] if the tokenizer has it."""
        ids = [int(token) for token in ids]
        if self.has_end:
            ids = ids[: ids.index(END)] if END in ids else ids
            ids = [token for token in ids if token > END]
        decoded: str = self.backend.decode([token for token in ids if token != PAD])
        # A byte-level tokenizer puts a space before the first word, too.
        return decoded.removeprefix(" ") if getattr(self.backend.pre_tokenizer, "add_prefix_space", False) else decoded

    def encode(self, texts: Sequence[str], location: Location = "text {}".format, *, ended: bool = False) -> Tokens:
        """Convert every text to token ids; `InputError` if one has no tokens, or without truncation more than `max_length`.

        With `ended` every text ends with [EOS], which counts towards `max_length`. `location(i)` names text i in messages.
        """
        limit = None if self.max_length is None else self.max_length - ended
        file = RaggedFile()
        for start in range(0, len(texts), CHUNK):
            chunk = list(_checked(texts[start : start + CHUNK], location, start))
            encodings = self.backend.encode_batch_fast(chunk, add_special_tokens=False)
            for row, encoding in enumerate(encodings, start):
                count = len(encoding.ids)
                if count == 0:
                    raise DataError(f"{location(row)}: no words in this text; fill it, or remove the row")
                if limit is not None and count > limit and not self.truncation:
                    advice = "shorten the text, or truncate it with max_length in the data spec or zoo predict --truncate"
                    raise DataError(f"{location(row)}: {count} tokens, the model reads at most {limit}; {advice}")
                ids = np.array(encoding.ids[:limit], np.int32)
                ids[ids <= (END if ended else UNKNOWN)] = UNKNOWN  # a literal "[PAD]" or "[EOS]" in the text
                file.append(np.append(ids, np.int32(END)) if ended else ids)
        return Tokens(*file.mapped("i4"))


def train_tokenizer(
    kind: str, texts: Iterable[str], vocab: int, lowercase: bool, min_count: int, *, ends: bool = False, running: bool = False
) -> Tokenizer:
    """Train a tokenizer without a maximum length; tokens are sorted by frequency, then alphabetically.

    Args:
        kind: `word` (words and punctuation marks), `space` (split at white space, for tokenized text), `char`, or `bpe` (byte
            pairs merged by frequency; Sennrich et al. 2016, as in GPT-2).
        texts: The texts of the training split only.
        vocab: Maximum vocabulary size, special tokens included.
        lowercase: Whether to lowercase texts.
        min_count: Minimum count of a token, or for `bpe` of a merge.
        ends: Whether to add [BOS] = 2 and [EOS] = 3, for texts to generate.
        running: Whether texts are parts of longer ones: `bpe` then puts no space before their first word.
    """
    special = check_tokenizer(kind, vocab, ends)
    blank = tokenizer_file.form(kind, normalizers=tokenizer_file.normalizers(lowercase), prefix_space=not running)
    options: Any = {"vocab_size": vocab, "min_frequency": min_count, "special_tokens": [*special], "show_progress": False}
    trainer: trainers.Trainer = trainers.WordLevelTrainer(**options)
    if kind == "bpe":
        trainer = trainers.BpeTrainer(**options, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    elif kind == "space":
        # The other kinds split off the brackets of a literal special token.
        texts = (re.sub(r"\[(PAD|UNK|BOS|EOS)\]", " ", text) for text in texts)
    tokenizer = tokenizer_file.build(blank)
    tokenizer.train_from_iterator(_checked(texts), trainer)
    # Without added tokens, the library does not look for "[PAD]" and "[UNK]" in texts.
    model = json.loads(tokenizer.to_str())["model"]
    return Tokenizer(tokenizer_file.build(tokenizer_file.filled(blank, model["vocab"], model.get("merges"))))


def _checked(texts: Iterable[str], location: Location = "text {}".format, first: int = 0) -> Iterator[str]:
    """Yield texts; raise `DataError` for one above `LONGEST` characters, or with characters that are not Unicode."""
    for row, text in enumerate(texts, first):
        if len(text) > LONGEST:
            raise DataError(f"{location(row)}: {len(text):,} characters, at most {LONGEST:,} can be tokenized; split it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{location(row)}: invalid UTF-8; save the text as UTF-8") from error
        yield text


def check_tokenizer(kind: str, vocab: int, ends: bool = False) -> tuple[str, ...]:
    """Check the options of `train_tokenizer`, and return the special tokens."""
    if kind not in TOKENIZERS:
        raise InputError(f"tokenizer={kind!r}: use {', '.join(TOKENIZERS)}")
    special = tokenizer_file.SPECIAL[: 4 if ends else 2]
    least = len(special) + (BYTES if kind == "bpe" else 1)
    if vocab < least:
        raise InputError(f"vocab={vocab}: the tokenizer {kind!r} needs at least {least} tokens")
    return special


LOSSLESS = ("char", "bpe")  # the tokenizers whose output is readable text
CODE_POINTS = 0x110000
MIN_COUNT = 2  # pairs of tokens that occur once are not merged


def train_corpus_tokenizer(kind: str, pieces: Iterable[str], vocab: int, lowercase: bool) -> Tokenizer:
    """Train a tokenizer on running text, as `train_tokenizer` does on texts; characters are counted many times faster."""
    if kind == "bpe":
        no_merges = vocab == UNKNOWN + 1 + BYTES  # nothing to train
        return train_tokenizer("bpe", () if no_merges else pieces, vocab, lowercase, MIN_COUNT, running=True)
    blank = tokenizer_file.form("char", normalizers=tokenizer_file.normalizers(lowercase))
    normalize = tokenizer_file.build(blank).normalizer.normalize_str
    counts = np.zeros(CODE_POINTS, dtype=np.int64)
    for piece in pieces:
        counts += np.bincount(_code_points(normalize(piece)), minlength=CODE_POINTS)
    occurring = np.flatnonzero(counts)
    frequent = occurring[np.argsort(-counts[occurring], kind="stable")][: vocab - UNKNOWN - 1]
    tokens = [*tokenizer_file.SPECIAL[: UNKNOWN + 1], *map(chr, frequent.tolist())]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return Tokenizer(tokenizer_file.build(tokenizer_file.filled(blank, vocabulary)))


def read_tokenizer(name: str) -> Tokenizer:
    """Read the ``tokenizer.json`` of a language model; `InputError` if its output is not readable text."""
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(f"tokenizer={name!r}: there is no such file")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"tokenizer={name!r}: cannot be read ({one_line(error, 120)})") from error
    tokenizer = Tokenizer(tokenizer_file.read(text, f"tokenizer={name!r}"))
    if tokenizer.backend.decoder is None:
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
