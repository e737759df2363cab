"""Tokenizers: from text to token numbers and back, with a vocabulary that is the same on every machine."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from zoo.data.info import TokenInfo
from zoo.data.options import DataError
from zoo.data.text.table import Column
from zoo.data.text.tokens import BEGIN, END, PAD, UNKNOWN, Ints, Tokens, tokenised
from zoo.errors import InputError

TOKENIZERS = ("word", "space", "char", "bpe")
SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
"""Tokens that stand for no text, by their numbers; the last two mark where a text that is to be written begins and ends."""

# Words, and every mark for itself. The endings n't, 's, 'll ... stand alone, as in the Penn Treebank and in all vector files.
WORDS = r"(?i)\w+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|ll|re|ve)\b|\w+|[^\w\s]"
BYTES = 256
CHUNK = 1000  # texts that are encoded at a time: the library's own records are a hundred times as large as the numbers we keep
Location = Callable[[int], str]  # names the place that text i of several comes from, for messages


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Turn texts into token numbers, as a model does before it computes.

    Attributes:
        backend: The `tokenizers.Tokenizer`: the vocabulary and the rules that cut a text; 0 is padding, 1 an unknown token.
        max_length: Tokens of a text at most; None for no limit.
        truncation: Whether a longer text is cut to its first `max_length` tokens; otherwise it is an error.

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
        """Rebuild the tokenizer of a stored model from its file and the info of its data."""
        quiet()
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # The library raises Exception itself.
            reason = str(error).splitlines()[0][:120]
            raise DataError(f"{info.tokenizer}: this is not a file of the tokenizers library ({reason})") from error
        if (size := backend.get_vocab_size()) != info.vocab_size:
            raise InputError(f"{info.tokenizer}: {size} tokens, the model has {info.vocab_size}; it is another model's file")
        return cls(backend, info.max_length, truncation)

    def to_json(self) -> str:
        """Return the content of a tokenizer file."""
        return self.backend.to_str()

    def limited(self, max_length: int | None, *, truncation: bool = False) -> Self:
        """Return this tokenizer with another limit."""
        return replace(self, max_length=max_length, truncation=truncation)

    def shortened(self, max_length: int) -> Self:
        """Return this tokenizer cutting texts at a length, but at its own limit if that is less."""
        limits = [limit for limit in (max_length, self.max_length) if limit is not None]
        return self.limited(min(limits), truncation=True)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, padding and unknown included."""
        return self.backend.get_vocab_size()

    @property
    def tokens(self) -> list[str]:
        """All tokens in the order of their numbers."""
        vocabulary = self.backend.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    @property
    def has_end(self) -> bool:
        """Whether its vocabulary has the tokens that a generated text begins and ends with."""
        return self.backend.token_to_id(SPECIAL[END]) == END

    def decode(self, ids: Sequence[int] | Ints) -> str:
        """Turn token numbers into text again, up to the token that ends it."""
        text = [int(number) for number in ids]
        if self.has_end:
            text = text[: text.index(END)] if END in text else text
            text = [number for number in text if number > END]
        decoded: str = self.backend.decode([number for number in text if number != PAD])
        # Byte pairs cut the first word of a text like all others: with the space before it.
        return decoded.removeprefix(" ") if getattr(self.backend.pre_tokenizer, "add_prefix_space", False) else decoded

    def encode(self, texts: Sequence[str], location: Location = "text {}".format, *, ended: bool = False) -> Tokens:
        """Turn every text into token numbers.

        Args:
            texts: Any number of texts.
            location: Names the place that text i comes from, for messages.
            ended: Whether [EOS] follows every text; it counts towards `max_length`.

        Raises:
            InputError: A text has no tokens, or more than `max_length` without truncation; the message names the place.
        """
        quiet()
        limit = None if self.max_length is None else self.max_length - ended
        parts = []
        for start in range(0, len(texts), CHUNK):
            encodings = self.backend.encode_batch_fast(list(texts[start : start + CHUNK]), add_special_tokens=False)
            parts += [
                self._checked(np.asarray(encoding.ids, dtype=np.int32), limit, location, row)
                for row, encoding in enumerate(encodings, start)
            ]
        tokens = Tokens.of(parts)
        if not ended:
            return tokens
        inside = (tokens.flat == BEGIN) | (tokens.flat == END)  # "[EOS]" written in a text
        flat = np.insert(np.where(inside, np.int32(UNKNOWN), tokens.flat), tokens.stops, END)
        return Tokens.flattened(flat, tokens.lengths + 1)

    def encode_column(self, column: Column, location: Location, content: str, *, ended: bool = False) -> Tokens:
        """Do as `encode` in constant memory: the tokens of a large column are kept in a mapped file, named after `content`."""

        def parts() -> Iterator[Tokens]:
            done = 0
            for texts in column.batches():
                yield self.encode(texts.to_pylist(), lambda row: location(done + row), ended=ended)  # noqa: B023
                done += len(texts)

        return tokenised(parts(), content, self.to_json(), f"{self.max_length} {self.truncation} {ended}")

    def _checked(self, ids: Ints, limit: int | None, location: Location, row: int) -> Ints:
        if len(ids) == 0:
            raise DataError(f"{location(row)}: no words in this text; leave the row out or write something")
        if limit is not None and len(ids) > limit and not self.truncation:
            advice = "shorten the text, or let it be cut (max_length in the data, zoo predict --truncate)"
            raise DataError(f"{location(row)}: {len(ids)} tokens, the model reads at most {limit}; {advice}")
        ids = ids[:limit]
        return np.where(ids == PAD, np.int32(UNKNOWN), ids)  # "[PAD]" written in a text is a word nobody knows


def train_tokenizer(
    kind: str, texts: Iterable[str], vocab: int, lowercase: bool, min_count: int, *, ends: bool = False, running: bool = False
) -> Tokenizer:
    """Learn a vocabulary: the most frequent tokens first, those of one count by letter; the tokenizer has no limit of length.

    Args:
        kind: `word` (words and punctuation marks), `space` (text that is tokenised already: split at white space), `char`, or
            `bpe` (pairs of bytes, merged by frequency; Sennrich et al. 2016, as in GPT-2).
        texts: The texts of the training split, and of no other.
        vocab: Tokens at most, [PAD] = 0 and [UNK] = 1 included.
        lowercase: Whether capitals are made small.
        min_count: Tokens that occur less often are left out; `bpe` makes no such merges.
        ends: Whether there are also [BOS] = 2 and [EOS] = 3, for texts that are to be written.
        running: Whether a text is part of a longer one: `bpe` then puts no space before its first word.
    """
    special = check_tokenizer(kind, vocab, ends)
    quiet()
    options: Any = {"vocab_size": vocab, "min_frequency": min_count, "special_tokens": [*special], "show_progress": False}
    trainer: trainers.Trainer
    if kind == "bpe":
        tokenizer, alphabet = tokenizers.Tokenizer(models.BPE()), sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(**options, initial_alphabet=alphabet)
    else:
        tokenizer, trainer = (
            tokenizers.Tokenizer(models.WordLevel(unk_token=SPECIAL[UNKNOWN])),
            trainers.WordLevelTrainer(**options),
        )
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])])
    pre_tokenizer, decoder = _cutting(kind, prefix_space=not running)
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    if kind == "space":  # elsewhere brackets stand alone
        texts = (re.sub(r"\[(PAD|UNK|BOS|EOS)\]", " ", text) for text in texts)
    tokenizer.train_from_iterator(texts, trainer)
    # The rule that finds [PAD] and [UNK] in running text is taken away: there they are words like any other.
    state = {**json.loads(tokenizer.to_str()), "added_tokens": []}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)))


def check_tokenizer(kind: str, vocab: int, ends: bool = False) -> tuple[str, ...]:
    """Check the options of `train_tokenizer` that need no texts, and return the tokens that stand for no text."""
    if kind not in TOKENIZERS:
        raise InputError(f"tokenizer={kind!r}: use {', '.join(TOKENIZERS)}")
    special = SPECIAL[: 4 if ends else 2]
    least = len(special) + (BYTES if kind == "bpe" else 1)
    if vocab < least:
        raise InputError(f"vocab={vocab}: the tokenizer {kind!r} needs at least {least} tokens")
    return special


def _cutting(kind: str, prefix_space: bool) -> tuple[Any, Any]:
    """Return what says where a text is cut, and how the parts are put together again."""
    if kind == "bpe":
        return pre_tokenizers.ByteLevel(add_prefix_space=prefix_space), decoders.ByteLevel()
    if kind == "space":
        return pre_tokenizers.WhitespaceSplit(), None
    if kind == "char":
        return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()
    return pre_tokenizers.Split(Regex(WORDS), "removed", invert=True), None


def quiet() -> None:
    """Let `tokenizers` use one thread unless the user says otherwise: it warns about, or hangs in, processes forked later."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
