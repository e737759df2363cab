"""The file of a tokenizer: the forms that the zoo writes, which are the only ones that it reads.

A tokenizer file can make the tokenizers library run any regular expression, multiply a text by replacements and padding, or
panic. So a file is compared with the few forms below before the library sees it; only its vocabulary and merges are free.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from zoo.errors import InputError, one_line

SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]")
"""Special tokens in the order of their ids; the last two mark the beginning and end of generated text."""

# Words, and single punctuation marks. The endings n't, 's, 'll ... are separate, as in the Penn Treebank and all vector files.
WORDS = r"(?i)\w+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|ll|re|ve)\b|\w+|[^\w\s]"
MAX_SIZE = 2**24
"""Maximum number of characters of a tokenizer file; a vocabulary of 500,000 words takes 10 million."""

Form = dict[str, Any]
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_BYTE_LEVEL = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
_SPLITS: dict[str, Form] = {
    "word": {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": True},
    "space": {"type": "WhitespaceSplit"},
    "char": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
}
_WORD_LEVEL: Form = {"type": "WordLevel", "unk_token": SPECIAL[1]}
_BPE: Form = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
_BPE |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}


def form(kind: str, *, normalizers: Sequence[str] | None = ("NFC",), prefix_space: bool = False) -> Form:
    """Return the content of a tokenizer file without a vocabulary.

    Args:
        kind: `word`, `space`, `char` or `bpe`, see `zoo.data.tokenizer.train_tokenizer`.
        normalizers: The types of the normalizers in order; None for imported tokenizers without any.
        prefix_space: Whether `bpe` puts a space before the first word.
    """
    is_bpe = kind == "bpe"
    decoder = _BYTE_LEVEL | {"add_prefix_space": True} if is_bpe else {"type": "Fuse"} if kind == "char" else None
    sequence = {"type": "Sequence", "normalizers": [{"type": name} for name in normalizers or ()]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None if normalizers is None else sequence,
        "pre_tokenizer": _BYTE_LEVEL | {"add_prefix_space": prefix_space} if is_bpe else _SPLITS[kind],
        "post_processor": None,
        "decoder": decoder,
        "model": _BPE | {"vocab": {}, "merges": []} if is_bpe else _WORD_LEVEL | {"vocab": {}},
    }


def normalizers(lowercase: bool) -> tuple[str, ...]:
    """Return the types of the normalizers of a trained tokenizer."""
    return ("NFC", "Lowercase") if lowercase else ("NFC",)


_NORMALIZERS = [normalizers(lowercase) for lowercase in (False, True)]
FORMS = [form(kind, normalizers=names) for kind in _SPLITS for names in _NORMALIZERS]
FORMS += [form("bpe", normalizers=names, prefix_space=prefix) for names in _NORMALIZERS for prefix in (False, True)]
IMPORTED = form("bpe", normalizers=None)
"""The form of an imported GPT-2; it may have added tokens."""


def filled(
    blank: Form, vocab: Mapping[str, int], merges: Sequence[Sequence[str]] | None = None, added: Sequence[Form] = ()
) -> Form:
    """Return a form with a vocabulary, the merges of `bpe` and added tokens."""
    model = blank["model"] | {"vocab": dict(vocab)}
    if "merges" in model:
        model["merges"] = [list(pair) for pair in merges or ()]
    return blank | {"model": model, "added_tokens": list(added)}


def build(state: Form, origin: str = "the tokenizer") -> tokenizers.Tokenizer:
    """Build the tokenizer of a valid state."""
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(state))
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{origin}: not a tokenizer of the zoo ({one_line(error, 120)})", code="corrupt") from error


def write(backend: tokenizers.Tokenizer) -> str:
    """Return the content of the file of a tokenizer; `InputError` unless it has one of the forms."""
    state = checked(json.loads(backend.to_str()), "the tokenizer")
    text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
    _check_size(text, "the tokenizer")
    return text


def read(text: str, origin: str) -> tokenizers.Tokenizer:
    """Build the tokenizer of a file; `InputError` unless it has one of the forms."""
    _check_size(text, origin)
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: not a tokenizer of the zoo ({one_line(error, 120)})", code="corrupt") from error
    return build(checked(state, origin), origin)


def _check_size(text: str, origin: str) -> None:
    if len(text) > MAX_SIZE:
        raise InputError(f"{origin}: its vocabulary takes more than {MAX_SIZE:,} characters: use a smaller vocab")


def checked(state: Any, origin: str) -> Form:
    """Return a state after comparing it with the forms, and checking its vocabulary, merges and added tokens."""
    message = f"{origin}: not a tokenizer of the zoo"
    model = state.get("model") if isinstance(state, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise InputError(f"{message} (it has no vocabulary)", code="corrupt")
    vocab, merges, added = model["vocab"], model.get("merges"), state.get("added_tokens")
    empty: dict[str, Any] = {"vocab": {}} | ({} if merges is None else {"merges": []})
    blank = state | {"model": model | empty, "added_tokens": []}
    known = next((each for each in [*FORMS, IMPORTED] if each == blank), None)
    if known is None or not isinstance(added, list):
        names = [key for key in {**FORMS[0], **blank} if all(blank.get(key) != each.get(key) for each in [*FORMS, IMPORTED])]
        raise InputError(f"{message} ({', '.join(names) or 'a setting'} differs): train it with zoo fit", code="corrupt")
    ids = dict(vocab)
    for token in added:
        if known is not IMPORTED or not _is_added(token) or ids.setdefault(token["content"], token["id"]) != token["id"]:
            raise InputError(f"{message} (its added tokens)", code="corrupt")
    numbers = [number for number in ids.values() if type(number) is int]
    if len(numbers) != len(ids) or sorted(numbers) != [*range(len(ids))] or [*map(ids.get, SPECIAL[:2])] != [0, 1]:
        text = f"its ids must be 0 to {len(ids) - 1}, starting with {SPECIAL[0]} and {SPECIAL[1]}"
        raise InputError(f"{message} ({text})", code="corrupt")
    if merges is not None and not (isinstance(merges, list) and all(_is_merge(pair, vocab) for pair in merges)):
        raise InputError(f"{message} (its merges must be pairs of tokens)", code="corrupt")
    return filled(known, vocab, merges, added)


def _is_added(token: object) -> bool:
    """Return whether an added token has a text, an id and boolean options."""
    if not isinstance(token, dict) or token.keys() != {"id", "content", *_FLAGS}:
        return False
    is_valid = isinstance(token["content"], str) and token["content"] != "" and type(token["id"]) is int
    return is_valid and all(isinstance(token[name], bool) for name in _FLAGS)


def _is_merge(pair: Any, vocab: Mapping[str, int]) -> bool:
    """Return whether a merge is a pair of tokens whose concatenation is a token."""
    is_pair = isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
    return is_pair and {pair[0], pair[1], pair[0] + pair[1]} <= vocab.keys()
