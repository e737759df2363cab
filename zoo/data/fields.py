"""The fields of info that were stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from zoo.errors import InputError


def check_fields(info: type[Any], values: Mapping[str, Any]) -> None:
    """Check that values have exactly the fields of a class of info.

    Raises:
        InputError: A field is missing or unknown.
    """
    known = {field.name for field in fields(info)}
    if wrong := known ^ set(values):
        raise InputError(f"data info: missing or unknown fields {sorted(wrong)}; expected {sorted(known)}")
