"""Presets of texts that name the options of `TextData` as their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from zoo.data.options import Preset, options_of
from zoo.data.text.module import TextData


@overload
def text_options(preset: Preset) -> Preset: ...
@overload
def text_options(**defaults: Any) -> Callable[[Preset], Preset]: ...
def text_options(preset: Preset | None = None, **defaults: Any) -> Preset | Callable[[Preset], Preset]:
    """Show the options of `TextData` in the signature of a preset, in place of its ``**options``; see `options_of`.

    Args:
        preset: The function, if the decorator is used without parentheses.
        defaults: Other defaults of this preset.

    Example:
        >>> @text_options(tokenizer="space", max_length=64)
        ... def trec(path: str | None = None, **options): return options
        >>> trec(fold=3)["max_length"]
        64
    """
    shown = options_of(TextData, **defaults)
    return shown if preset is None else shown(preset)
