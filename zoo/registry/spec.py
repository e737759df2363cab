"""Parse and format spec strings such as `phm(n=8)`, a plugin name with keyword options, without evaluating code."""

import ast
import re
import warnings
from dataclasses import dataclass, field
from types import NoneType
from typing import TypeAlias

from zoo.errors import InputError, shorten
from zoo.registry.limits import check_plain

Value: TypeAlias = "bool | int | float | str | list[Value] | tuple[Value, ...] | None"

MAX_LENGTH = 4096
MAX_DEPTH = 16
NAME = re.compile(r"[A-Za-z0-9_./:-]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None}
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
# Complete quoted strings come first, so that a single quote is an unterminated one.
_MARK = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[][(){},'"]""", re.DOTALL)


@dataclass(frozen=True)
class Spec:
    """A name and its options; `str` returns the canonical text, with options in alphabetical order.

    Values that a spec string cannot express raise `InputError`.

    >>> spec = Spec.parse("vit( dim=64, act='relu', depth=6)")
    >>> str(spec)
    'vit(act=relu, depth=6, dim=64)'
    """

    name: str
    options: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"invalid name {shorten(self.name)} (use letters, digits, '_', '-', '.', '/' and ':')")
        for key in self.options:
            if not _KEY.fullmatch(key):
                raise InputError(f"invalid option name {shorten(key)}")
        object.__setattr__(self, "options", dict(sorted(self.options.items())))
        if len(str(self)) > MAX_LENGTH:
            raise InputError(f"it is longer than {MAX_LENGTH} characters")

    @classmethod
    def parse(cls, text: str) -> "Spec":
        """Parse `name` or `name(key=value, ...)`; raise `InputError` for any other text."""
        try:
            if len(text) > MAX_LENGTH:
                raise InputError(f"it is longer than {MAX_LENGTH} characters")
            name, bracket, rest = text.strip().partition("(")
            if bracket and not rest.endswith(")"):
                raise InputError("the last character is not ')'")
            return cls(name.rstrip(), _options(rest[:-1]))
        except InputError as error:
            raise InputError(f"bad spec {shorten(text)}: {error}; expected name or name(key=value, ...)") from None

    def __str__(self) -> str:
        inside = ", ".join(f"{key}={write_value(value)}" for key, value in self.options.items())
        return f"{self.name}({inside})" if inside else self.name


def _options(body: str) -> dict[str, Value]:
    """Parse the text between the parentheses."""
    options: dict[str, Value] = {}
    for part in split_at_commas(body):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not _KEY.fullmatch(key):
            raise InputError(f"{shorten(part)} is not key=value")
        if key in options:
            raise InputError(f"option {key!r} is given twice")
        if not value:
            raise InputError(f"option {key!r} has no value")
        options[key] = read_value(value)
    return options


def read_value(text: str) -> Value:
    """Parse a value: a Python literal, `true`, `false`, `none`, `null`, a list or tuple of values, or else plain text.

    >>> read_value("1e-3"), read_value("true"), read_value("../data/sst"), read_value("[attention, ffn]"), read_value("'8'")
    (0.001, True, '../data/sst', ['attention', 'ffn'], '8')
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text.startswith("{"):
        raise _not_a_value(text)
    try:
        with warnings.catch_warnings():  # Python warns about "\d" and "1if", which are plain text here
            warnings.simplefilter("ignore")
            literal: Value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _read_sequence(text)
    write_value(literal)
    return literal


def _read_sequence(text: str) -> Value:
    """Parse `[a, b]` or `(a, b)`; other or malformed text is returned unchanged."""
    if text[:1] not in {"[", "("} or not text.endswith(_CLOSERS[text[0]]):
        return text
    try:
        parts = split_at_commas(text[1:-1])
    except InputError:
        return text
    items = [read_value(part) for part in parts]
    if text[0] == "[":
        return items
    return items[0] if len(items) == 1 and not text[1:-1].rstrip().endswith(",") else tuple(items)


def write_value(value: Value, depth: int = 0) -> str:
    """Format a value so that `read_value` returns it; text is quoted only if it would be parsed as something else.

    >>> write_value(8), write_value("8"), write_value("a b"), write_value(("x", 1.0)), write_value(float("inf"))
    ('8', "'8'", 'a b', '(x, 1.0)', '1e999')
    """
    kind = type(value)
    if depth > MAX_DEPTH:
        raise InputError(f"brackets nest deeper than {MAX_DEPTH}")
    if isinstance(value, str | int):
        check_plain("invalid value", value)
    if kind is str:
        return str(value) if _reads_back(str(value), depth) else repr(value)
    if isinstance(value, list | tuple) and kind in {list, tuple}:
        inside = ", ".join(write_value(item, depth + 1) for item in value)
        return f"[{inside}]" if kind is list else f"({inside},)" if len(value) == 1 else f"({inside})"
    if kind not in {bool, int, float, NoneType} or value != value:
        raise _not_a_value(f"{value!r}")
    return repr(value).replace("inf", "1e999")  # "inf" would be parsed as text


def _reads_back(text: str, depth: int) -> bool:
    """Return whether unquoted text is parsed as itself, at the top level or (depth > 0) inside a list."""
    if not text.isprintable() or (depth and _MARK.search(text)):
        return False
    try:
        return split_at_commas(text) == [text] and read_value(text) == text
    except InputError:
        return False


def _not_a_value(shown: str) -> InputError:
    return InputError(f"invalid value {shorten(shown)}: use a number, text, true, false, none, or a list or tuple of them")


def split_at_commas(text: str) -> list[str]:
    """Split text at commas outside quotes and brackets; a trailing comma is allowed.

    >>> split_at_commas("p=0, start=clifford(p=0,q=2), name='a,b'")
    ['p=0', 'start=clifford(p=0,q=2)', "name='a,b'"]
    """
    parts, start, open_brackets = [], 0, list[str]()
    for match in _MARK.finditer(text):
        mark = match.group()
        if mark in _CLOSERS:
            open_brackets.append(_CLOSERS[mark])
        elif mark in {")", "]", "}"}:
            if not open_brackets or open_brackets.pop() != mark:
                raise InputError(f"unmatched {mark!r}")
        elif mark in {"'", '"'}:
            raise InputError(f"unterminated quote {mark}")
        elif mark == "," and not open_brackets:
            parts.append(text[start : match.start()].strip())
            start = match.end()
        if len(open_brackets) > MAX_DEPTH:
            raise InputError(f"brackets nest deeper than {MAX_DEPTH}")
    if open_brackets:
        raise InputError(f"missing {open_brackets[-1]!r}")
    last = text[start:].strip()
    parts += [last] if last else []
    if "" in parts:
        raise InputError("empty item before a comma")
    return parts
