"""Training a tokenizer: from text to a vocabulary, the same on every machine."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zoo.data.text.tokens import UNKNOWN
from zoo.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

KINDS = ("word", "space", "char", "bpe")
SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
"""Tokens that stand for no text, by their numbers; the last two mark where a text that is to be written begins and ends."""

# Words, and every mark for itself. The endings n't, 's, 'll ... stand alone, as in the Penn Treebank and in all vector files.
WORDS = r"(?i)\w+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|ll|re|ve)\b|\w+|[^\w\s]"
BYTES = 256


def train_tokenizer(
    kind: str,
    texts: Iterable[str],
    vocab: int,
    lowercase: bool,
    min_count: int,
    *,
    ends: bool = False,
    running: bool = False,
) -> Tokenizer:
    """Learn a vocabulary; the most frequent tokens come first and words of one count in the order of their letters.

    Args:
        kind: `word` (words and punctuation marks), `space` (text that is tokenised already: split at white space), `char`, or
            `bpe` (pairs of bytes, merged by frequency; Sennrich et al. 2016, as in GPT-2).
        texts: The texts of the training split, and of no other.
        vocab: Tokens at most, [PAD] = 0 and [UNK] = 1 included.
        lowercase: Whether capitals are made small.
        min_count: Tokens that occur less often are left out; `bpe` makes no such merges.
        ends: Whether there are also [BOS] = 2 and [EOS] = 3, for texts that are to be written.
        running: Whether a text is part of a longer one: `bpe` then puts no space before its first word.

    Raises:
        InputError: The kind or a number is wrong.
    """
    if kind not in KINDS:
        raise InputError(f"tokenizer={kind!r}: use {', '.join(KINDS)}")
    special = SPECIAL[: 4 if ends else 2]
    least = len(special) + (BYTES if kind == "bpe" else 1)
    if vocab < least:
        raise InputError(f"vocab={vocab}: the tokenizer {kind!r} needs at least {least} tokens")
    quiet()
    from tokenizers import Tokenizer, models, normalizers, trainers

    options: dict[str, Any] = {
        "vocab_size": vocab,
        "min_frequency": min_count,
        "special_tokens": [*special],
        "show_progress": False,
    }
    trainer: trainers.Trainer
    if kind == "bpe":
        made, trainer = Tokenizer(models.BPE()), trainers.BpeTrainer(**options, initial_alphabet=_alphabet())
    else:
        made, trainer = Tokenizer(models.WordLevel(unk_token=SPECIAL[UNKNOWN])), trainers.WordLevelTrainer(**options)
    made.normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])])
    _set_cutting(made, kind, prefix_space=not running)
    if kind == "space":  # elsewhere brackets stand alone
        texts = (re.sub(r"\[(PAD|UNK|BOS|EOS)\]", " ", text) for text in texts)
    made.train_from_iterator(texts, trainer)
    return _plain(made)


def _set_cutting(tokenizer: Tokenizer, kind: str, prefix_space: bool) -> None:
    """Say where a text is cut, and how the parts are put together again."""
    from tokenizers import Regex, decoders, pre_tokenizers

    if kind == "bpe":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
        tokenizer.decoder = decoders.ByteLevel()
    elif kind == "space":
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    elif kind == "char":
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)


def _alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    """Take away the rule that finds [PAD] and [UNK] in running text: there they are words like any other."""
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.to_str())
    return Tokenizer.from_str(json.dumps({**state, "added_tokens": []}))


def quiet() -> None:
    """Let `tokenizers` use one thread unless the user says otherwise: it warns about, or hangs in, processes forked later."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
