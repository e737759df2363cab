"""Presets of sizes, and what the user puts in their place."""

from collections.abc import Mapping
from typing import Any

from zoo.errors import InputError


def sizes(backbone: str, presets: Mapping[str, Mapping[str, Any]], variant: str, **given: Any) -> dict[str, Any]:
    """Return the sizes of a preset, with those that were given in their place.

    Args:
        backbone: Its name, for messages.
        presets: Sizes by the name of a preset.
        variant: The preset.
        given: Sizes by name; None for those of the preset.

    Raises:
        InputError: If there is no such preset, or a size is less than one.
    """
    if variant not in presets:
        names = ", ".join(f"{backbone}/{name}" for name in presets)
        raise InputError(f"unknown preset {backbone}/{variant}: use {names}")
    found = {**presets[variant]} | {name: value for name, value in given.items() if value is not None}
    for name in ("dim", "depth", "heads", "ffn"):
        if found[name] < 1:
            raise InputError(f"{name}={found[name]}: a {backbone} has at least one")
    return found
