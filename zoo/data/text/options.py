"""Presets of texts that name the options of `TextData` as their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints, overload

from zoo.data.text.module import TextData

Preset = Callable[..., TextData]

FIXED = ("self", "splits", "task", "classes", "names")
"""What a preset decides by itself."""


@overload
def text_options(preset: Preset) -> Preset: ...
@overload
def text_options(**defaults: Any) -> Callable[[Preset], Preset]: ...
def text_options(preset: Preset | None = None, **defaults: Any) -> Preset | Callable[[Preset], Preset]:
    """Show the options of `TextData` in the signature of a preset, in place of its ``**options``.

    The registry reads signatures: it then checks these options, offers the closest one to a misspelt name and lists them.
    The preset hands its ``**options`` on to `TextData`. A parameter of its own that has the name of an option replaces it.

    Args:
        preset: The function, if the decorator is used without parentheses.
        defaults: Other defaults of this preset.

    Example:
        >>> @text_options(tokenizer="space", max_length=64)
        ... def trec(path: str | None = None, **options): return options
        >>> signature(trec).parameters["max_length"]
        <Parameter "max_length: int | None = 64">
        >>> trec(fold=3)["max_length"]
        64
    """
    if preset is None:
        return lambda function: _shown(function, defaults)
    return _shown(preset, defaults)


def _shown(preset: Preset, defaults: dict[str, Any]) -> Preset:
    own = [p for p in signature(preset).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    hints = get_type_hints(TextData.__init__)
    options = {
        name: parameter.replace(
            default=defaults.get(name, parameter.default), annotation=hints[name], kind=Parameter.KEYWORD_ONLY
        )
        for name, parameter in signature(TextData.__init__).parameters.items()
        if name not in FIXED and name not in {p.name for p in own}
    }
    if unknown := set(defaults) - set(options):
        raise TypeError(f"{preset.__name__}: no such options of TextData: {', '.join(sorted(unknown))}")

    @wraps(preset)
    def called(*args: Any, **given: Any) -> TextData:
        shown.bind(*args, **given)  # A preset must not swallow an option that it does not show.
        return preset(*args, **{**defaults, **given})

    own_hints = get_type_hints(preset)
    shown = Signature([*(p.replace(annotation=own_hints.get(p.name, p.annotation)) for p in own), *options.values()])
    called.__signature__ = shown  # type: ignore[attr-defined]
    called.__annotations__ = {**own_hints, **{name: hints[name] for name in options}}
    called.__annotations__.pop("options", None)
    return called
