"""Records: dataclasses that are read from JSON files, whose values are checked by the types of the fields. No torch."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def invalid_fields(kind: type, values: Mapping[str, object], required: frozenset[str] = frozenset()) -> list[str]:
    """Return the names of the fields of a dataclass whose JSON values are missing or have another type.

    Example:
        >>> from dataclasses import make_dataclass
        >>> invalid_fields(make_dataclass("Point", [("x", float), ("y", float), ("z", float)]), {"x": 1, "y": "2"})
        ['y', 'z']
    """
    types = _types(kind)

    def is_valid(field: Field[object]) -> bool:
        if field.name in values:
            return holds(values[field.name], types[field.name])
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        return has_default and field.name not in required

    return [field.name for field in fields(kind) if not is_valid(field)]


def known_fields(kind: type, values: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of the fields of a dataclass; other keys are those of another version, and are ignored."""
    return {field.name: values[field.name] for field in fields(kind) if field.name in values}


@cache
def _types(kind: type) -> dict[str, object]:
    return get_type_hints(kind)


def holds(value: object, kind: object) -> bool:
    """Return whether a JSON value has a type, such as ``dict[str, float | None]``; whole numbers are also floats."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return True
    if origin in (Union, UnionType):
        return any(holds(value, option) for option in arguments)
    if origin is dict:
        return isinstance(value, dict) and all(holds(item, arguments[1]) for item in value.values())
    if origin is list:
        return isinstance(value, list) and all(holds(item, arguments[0]) for item in value)
    if isinstance(kind, type) and is_dataclass(kind):
        return isinstance(value, dict) and not invalid_fields(kind, value)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind or (value is None and kind is type(None))
