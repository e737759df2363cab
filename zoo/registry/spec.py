"""Spec strings: `phm(n=8)` is one plugin name with keyword options, and nothing else."""

import re
from dataclasses import dataclass, field

from zoo.errors import InputError
from zoo.registry.literals import Value, read, write
from zoo.registry.text import shorten, split

MAX_LENGTH = 4096
NAME = re.compile(r"[A-Za-z0-9_./:-]+")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, eq=False)
class Spec:
    """A name and its options; `str` gives the one canonical text, with the options in alphabetical order.

    Two specs are equal when their texts are, so `n=1`, `n=1.0` and `n=true` stay apart.

    >>> spec = Spec.parse("vit( dim=64, act='relu', depth=6)")
    >>> str(spec)
    'vit(act=relu, depth=6, dim=64)'
    >>> Spec.parse(str(spec)) == spec
    True

    Raises:
        InputError: The name, a key or a value cannot be written in a spec string.
    """

    name: str
    options: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"{shorten(self.name)} is not a name (letters, digits, '_', '-', '.', '/' and ':')")
        for key in self.options:
            if not _KEY.fullmatch(key):
                raise InputError(f"{shorten(key)} is not an option name")
        object.__setattr__(self, "options", dict(sorted(self.options.items())))
        if len(str(self)) > MAX_LENGTH:
            raise InputError(f"it is longer than {MAX_LENGTH} characters")

    @classmethod
    def parse(cls, text: str) -> "Spec":
        """Read `name` or `name(key=value, ...)`.

        Raises:
            InputError: The text is anything else; the line quotes it and says what is expected.
        """
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
        inside = ", ".join(f"{key}={write(value)}" for key, value in self.options.items())
        return f"{self.name}({inside})" if inside else self.name

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Spec) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def _options(body: str) -> dict[str, Value]:
    """Read the text between the brackets."""
    options: dict[str, Value] = {}
    for part in split(body):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not _KEY.fullmatch(key):
            raise InputError(f"{shorten(part)} is not key=value")
        if key in options:
            raise InputError(f"option {key!r} is given twice")
        if not value:
            raise InputError(f"option {key!r} has no value")
        options[key] = read(value)
    return options
