"""The values inside a spec string: cut, read and written back without evaluating anything."""

import ast
import warnings
from types import NoneType
from typing import TypeAlias

from zoo.errors import InputError
from zoo.registry.text import CLOSERS, MARK, MAX_DEPTH, shorten, split

Value: TypeAlias = "bool | int | float | str | list[Value] | tuple[Value, ...] | None"

_MAX_BITS = 4096
_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None}


def read(text: str) -> Value:
    """Read one value: a Python literal, `true`, `false`, `none`, `null`, a list or tuple of values, or else bare text.

    >>> read("1e-3"), read("true"), read("../data/sst"), read("[attention, ffn]"), read("'8'")
    (0.001, True, '../data/sst', ['attention', 'ffn'], '8')

    Raises:
        InputError: The text is a set, a dict, bytes or a complex number.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("{"):
        raise _refusal(text)
    try:
        with warnings.catch_warnings():  # Python warns of "\d" and "1if", which are bare text here.
            warnings.simplefilter("ignore")
            literal: Value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _read_sequence(text)
    write(literal)
    return literal


def _read_sequence(text: str) -> Value:
    """Read `[a, b]` or `(a, b)` value by value; any other text, and one that is not well formed, stays text."""
    if text[:1] not in {"[", "("} or not text.endswith(CLOSERS[text[0]]):
        return text
    try:
        parts = split(text[1:-1])
    except InputError:
        return text
    items = [read(part) for part in parts]
    if text[0] == "[":
        return items
    return items[0] if len(items) == 1 and not text[1:-1].rstrip().endswith(",") else tuple(items)


def write(value: Value, depth: int = 0) -> str:
    """Write a value so that `read` gives it back; text is quoted only where it would read as something else.

    >>> write(8), write("8"), write("a b"), write(("x", 1.0)), write(float("inf"))
    ('8', "'8'", 'a b', '(x, 1.0)', '1e999')

    Raises:
        InputError: The value, or one inside it, is of another kind, not a number, too large or too deep.
    """
    kind = type(value)
    if depth > MAX_DEPTH:
        raise InputError(f"brackets nest deeper than {MAX_DEPTH}")
    if kind is str:
        return str(value) if _reads_back(str(value), depth) else repr(value)
    if isinstance(value, list | tuple) and kind in {list, tuple}:
        inside = ", ".join(write(item, depth + 1) for item in value)
        return f"[{inside}]" if kind is list else f"({inside},)" if len(value) == 1 else f"({inside})"
    if kind not in {bool, int, float, NoneType} or value != value:
        raise _refusal(f"{value!r}")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:  # Python refuses to print and read huge integers.
        raise InputError(f"an integer has more than {_MAX_BITS} bits")
    # repr writes infinity as a word, which would read as text.
    return repr(value).replace("inf", "1e999")


def _reads_back(text: str, depth: int) -> bool:
    """Tell whether bare text reads as itself, on its own and (depth > 0) inside a list."""
    if not text.isprintable() or (depth and MARK.search(text)):
        return False
    try:
        return split(text) == [text] and read(text) == text
    except InputError:
        return False


def _refusal(shown: str) -> InputError:
    allowed = "a number, text, true, false, none, or a list or tuple of them"
    return InputError(f"{shorten(shown)} is not a value: use {allowed}")
