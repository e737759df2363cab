"""Compare the value of an option with a plain annotation."""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}


def annotations(factory: Callable[..., Any]) -> dict[str, Any]:
    """Read the annotations of a callable; what cannot be read is left out."""
    try:
        return get_type_hints(factory)
    except Exception:  # A stranger's annotations are his own affair.
        return {}


def expected(annotation: Any, value: object) -> str | None:
    """Say what a plain annotation asks for if the value is something else; None if it fits or cannot be judged.

    >>> expected(int | None, "abc")
    'a whole number or none'
    >>> expected(float, 1)
    """
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if any(kind not in _PLAIN for kind in kinds):
        return None
    if type(value) in kinds or (type(value) is int and float in kinds):
        return None
    return " or ".join(_PLAIN[kind] for kind in kinds)
