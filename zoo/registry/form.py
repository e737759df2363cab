"""What a plugin's callable lets a user set, read from its signature."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any

from zoo.errors import InputError
from zoo.registry.annotations import annotations, expected
from zoo.registry.literals import Value, write


@dataclass(frozen=True)
class Form:
    """The options of a callable once the zoo has placed its positional arguments.

    Attributes:
        name: The entry, for messages.
        blanks: The parameters left for keywords, by name.
        filled: The parameters that the positional arguments took.
        open_ended: Whether any other keyword is welcome.
        hints: The annotations that could be read.
    """

    name: str
    blanks: dict[str, Parameter]
    filled: frozenset[str]
    open_ended: bool
    hints: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, factory: Callable[..., Any], args: tuple[object, ...]) -> "Form":
        """Read the signature.

        Raises:
            TypeError: The callable does not take so many positional arguments.
        """
        try:
            parameters = signature(factory).parameters
        except (ValueError, TypeError):  # Some callables written in C have no signature; the call will tell.
            return cls(name, {}, frozenset(), True)
        filled = frozenset(signature(factory).bind_partial(*args).arguments)
        kinds = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
        blanks = {key: value for key, value in parameters.items() if value.kind in kinds and key not in filled}
        open_ended = any(value.kind is Parameter.VAR_KEYWORD for value in parameters.values())
        return cls(name, blanks, filled, open_ended, annotations(factory))

    def accepts(self, key: str) -> bool:
        """Tell whether the callable takes this keyword."""
        return key in self.blanks or (self.open_ended and key not in self.filled)

    def check(self, options: Mapping[str, Value], context: Collection[str]) -> None:
        """Compare the options of a spec, and what the zoo adds by itself, with the blanks.

        Raises:
            InputError: An option is unknown or of another type than a plain annotation says, or a required one is missing.
        """
        for option, value in options.items():
            if not self.accepts(option):
                close = get_close_matches(option.lower(), self.blanks, 1)
                hint = f" did you mean {close[0]!r}?" if close else ""
                raise InputError(f"unknown option {option!r} of {self.name}:{hint} {self.usage(context)}")
            if option in self.blanks and (kind := expected(self.hints.get(option), value)):
                raise InputError(f"{self.name}: {option}={write(value)[:60]} must be {kind}")
        for key, parameter in self.blanks.items():
            if parameter.default is Parameter.empty and key not in options and key not in context:
                raise InputError(f"{self.name} needs the option {key!r}: {self.usage(context)}")

    def usage(self, context: Collection[str] = ()) -> str:
        """Write the signature as a user fills it in, without what the zoo fills in by itself.

        >>> def vit(data, *, classes, dim=64, **rest): ...
        >>> Form.of("vit", vit, ("digits",)).usage(["classes"])
        'vit(dim=64, ...)'
        """
        shown = [key + _default(value.default) for key, value in self.blanks.items() if key not in context]
        return f"{self.name}({', '.join(shown + ['...'] * self.open_ended)})"


def _default(value: object) -> str:
    """Write a default as a spec would; one that no spec can hold is shown by its type."""
    if value is Parameter.empty:
        return ""
    try:
        return f"={write(value)}"  # type: ignore[arg-type]
    except InputError:
        return f"=<{type(value).__name__}>"
