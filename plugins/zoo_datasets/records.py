"""Presets of published data sets, each with the record of the set it reads."""

from collections.abc import Callable
from typing import Any, TypeVar

Preset = TypeVar("Preset", bound=Callable[..., Any])


def attach_record(preset: Preset, record: Any) -> Preset:
    """Name a preset after its record, and attach the record, which the preset reads when it is called."""
    preset.__name__ = preset.__qualname__ = record.name
    preset.__doc__ = f"Load the published set {record.name}."
    preset.record = record  # type: ignore[attr-defined]
    return preset
