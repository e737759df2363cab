"""Options from Python and from files, checked against the annotations of their class."""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, get_origin

from zoo.errors import InputError
from zoo.registry.annotations import expected

Options = TypeVar("Options")


def build(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Build an options object from nested mappings.

    Raises:
        InputError: If there is no such option, a value is of another kind, or a required one is missing.

    Example:
        >>> from dataclasses import make_dataclass
        >>> build(make_dataclass("Bread", [("flour", str), ("salt", float, 0.1)]), {"flour": "rye"})
        Bread(flour='rye', salt=0.1)
    """
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f": did you mean '{close[0]}'?" if close else f": use {', '.join(known)}"
            raise InputError(f"unknown option '{name}'{hint}")
    made = {name: checked(name, known[name].type, value) for name, value in values.items()}
    try:
        return kind(**made)
    except TypeError as error:
        raise InputError(f"{kind.__name__}: {str(error).partition(') ')[2]}") from error


def checked(name: str, kind: Any, value: Any) -> Any:
    """Return the value of an option, built if it has parts of its own.

    Raises:
        InputError: If it is of another kind than the annotation says.
    """
    if is_dataclass(kind) or get_origin(kind) is dict:
        if not isinstance(value, Mapping | kind if is_dataclass(kind) else Mapping):
            raise InputError(f"{name}={value!r} must be a dict of options by name")
        return build(kind, value) if is_dataclass(kind) and isinstance(value, Mapping) else value  # type: ignore[arg-type]
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = tuple(value) if isinstance(value, list) else value  # as files and flags give it
    if wanted := expected(kind, value):
        raise InputError(f"{name}={value!r} must be {wanted}")
    return value
