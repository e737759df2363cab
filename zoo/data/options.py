"""Options of data sets: whole numbers, and presets that show the options of the data module they make as their own."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from zoo.errors import InputError

Preset = Callable[..., Any]
Place = str | Path | None

FIXED = ("self", "splits", "task", "names")  # what a preset decides by itself


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return an option that must be a whole number in a range."""
    number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not number or value < least or (most is not None and value > most):  # type: ignore[operator]
        wanted = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InputError(f"{name}={value!r}: must be a whole number {wanted}")
    return int(value)  # type: ignore[call-overload,no-any-return]


def check_share(fraction: float, name: str, *, whole: bool = False) -> float:
    """Return an option that must be a share, above 0 and below 1 (or, with `whole`, at most 1)."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise InputError(f"{name}={fraction!r}: must be a number")
    if not 0 < fraction < 1 and not (whole and fraction == 1):
        raise InputError(f"{name}={fraction}: must be above 0 and {'at most' if whole else 'below'} 1")
    return fraction


def options_of(made: type, *hidden: str, **defaults: Any) -> Callable[[Preset], Preset]:
    """Show the options of a data module in the signature of a preset, in place of its ``**options``, which it hands on.

    The registry reads signatures: it then checks these options, offers the closest one to a misspelt name and lists them.

    Args:
        made: The data module; its options with defaults count, those in `FIXED` and the preset's own excepted.
        hidden: Options of the data module that make no sense for this preset.
        defaults: Other defaults of this preset.

    Example:
        >>> class Made:
        ...     def __init__(self, splits: dict[str, str], *, tokenizer: str = "word", max_length: int | None = None): ...
        >>> @options_of(Made, max_length=64)
        ... def trec(path: str | None = None, **options): return options
        >>> signature(trec).parameters["max_length"], trec(tokenizer="char")["max_length"]
        (<Parameter "max_length: int | None = 64">, 64)
    """
    return lambda preset: _shown(preset, made, hidden, defaults)


def _shown(preset: Preset, made: type, hidden: tuple[str, ...], defaults: dict[str, Any]) -> Preset:
    own = [p for p in signature(preset).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    hints = get_type_hints(made.__init__)  # type: ignore[misc]
    options = {
        name: parameter.replace(
            default=defaults.get(name, parameter.default), annotation=hints[name], kind=Parameter.KEYWORD_ONLY
        )
        for name, parameter in signature(made.__init__).parameters.items()  # type: ignore[misc]
        if name not in {*FIXED, *hidden, *(p.name for p in own)} and parameter.default is not Parameter.empty
    }
    if unknown := set(defaults) - set(options):
        raise TypeError(f"{preset.__name__}: no such options of {made.__name__}: {', '.join(sorted(unknown))}")

    @wraps(preset)
    def called(*args: Any, **given: Any) -> Any:
        shown.bind(*args, **given)  # A preset must not swallow an option that it does not show.
        return preset(*args, **{**defaults, **given})

    own_hints = get_type_hints(preset)
    shown = Signature([*(p.replace(annotation=own_hints.get(p.name, p.annotation)) for p in own), *options.values()])
    called.__signature__ = shown  # type: ignore[attr-defined]
    called.__annotations__ = {**own_hints, **{name: hints[name] for name in options}}
    called.__annotations__.pop("options", None)
    return called


def published(record: Any, make: Callable[..., Any], shown: Callable[[Preset], Preset], **own: Any) -> Any:
    """Return the preset of a published set; its attribute `record` is what it reads.

    Args:
        record: What says where the set is, with a `name`.
        make: Makes the data module of the record and all options; options are of the types that it declares.
        shown: Shows the options of the data module; see `options_of`.
        own: Defaults of the preset's own options, in the order of the signature.
    """
    hints = get_type_hints(make)
    types = {name: hints.get(name, type(default)) for name, default in own.items()}
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default) for name, default in own.items()]
    form = Signature([*parameters, Parameter("options", Parameter.VAR_KEYWORD)])

    def preset(*args: Any, **options: Any) -> Any:
        given = form.bind(*args, **options)
        given.apply_defaults()
        rest = given.arguments.pop("options")
        return make(found.record, **given.arguments, **rest)

    preset.__name__ = preset.__qualname__ = record.name
    preset.__doc__ = f"Load the published set {record.name}."
    preset.__signature__, preset.__annotations__ = form, types  # type: ignore[attr-defined]
    found: Any = shown(preset)
    found.record = record
    return found
