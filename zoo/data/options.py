"""Options of data sets: checks, local paths, and presets that pass options on to a data module."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from zoo.errors import InputError


class DataError(InputError):
    """An error in the user's data: a row, image or file that cannot be used."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, code="data")


def existing(path: str | Path, preset: str) -> Path:
    """Return the path, `~` expanded and relative to the working directory."""
    expanded = Path(path).expanduser()
    if not expanded.exists():
        raise InputError(f"{preset}: {expanded} does not exist (working directory {Path.cwd()})", code="missing")
    if not expanded.is_file() and not expanded.is_dir():
        raise DataError(f"{preset}: {expanded} is a pipe or a device; save the data to a file first")
    return expanded


def one_file(preset: str, folder: Path, names: Iterable[str]) -> Path | None:
    """Return the file of a folder that has one of these names, if there is any."""
    files = [file for name in names if (file := folder / name).is_file()]
    if len(files) > 1:
        raise InputError(f"{preset}: {folder} holds both {files[0].name} and {files[1].name}; keep one", code="conflict")
    return files[0] if files else None


def listing(folder: Path) -> str:
    """List the first few names in a folder, for messages."""
    return ", ".join(sorted(file.name for file in folder.iterdir())[:8]) or "nothing"


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


def options_of(made: type, *hidden: str, extra: Mapping[str, Any] | None = None, **defaults: Any) -> Callable[[Preset], Preset]:
    """Replace the ``**options`` in the signature of a preset by the options of the data module that it passes them to.

    The registry reads signatures: it then checks these options, suggests the closest name for a misspelt one and lists them.

    Args:
        made: The data module; its options with defaults count, those in `FIXED` and the preset's own excepted.
        hidden: Options of the data module that make no sense for this preset.
        extra: Further options of the preset that it takes from its ``**options``, and their defaults.
        defaults: Other defaults of this preset.

    Example:
        >>> class Made:
        ...     def __init__(self, splits: dict[str, str], *, tokenizer: str = "word", max_length: int | None = None): ...
        >>> @options_of(Made, max_length=64)
        ... def trec(path: str | None = None, **options): return options
        >>> signature(trec).parameters["max_length"], trec(tokenizer="char")["max_length"]
        (<Parameter "max_length: int | None = 64">, 64)
    """
    extra = extra or {}
    hints = get_type_hints(made.__init__)  # type: ignore[misc]

    def decorate(preset: Preset) -> Preset:
        own_hints = get_type_hints(preset)
        own = [p for p in signature(preset).parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        shown = {p.name: p.replace(annotation=own_hints.get(p.name, p.annotation)) for p in own}
        for name, value in extra.items():
            shown[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=type(value))
        for name, parameter in signature(made.__init__).parameters.items():  # type: ignore[misc]
            if name not in {*FIXED, *hidden, *shown} and parameter.default is not Parameter.empty:
                default = defaults.get(name, parameter.default)
                shown[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        if unknown := sorted(defaults.keys() - shown.keys()):
            raise TypeError(f"{preset.__name__}: no such options of {made.__name__}: {', '.join(unknown)}")

        @wraps(preset)
        def called(*args: Any, **given: Any) -> Any:
            called.__signature__.bind(*args, **given)  # type: ignore[attr-defined]  # a hidden option is not swallowed
            return preset(*args, **{**extra, **defaults, **given})

        called.__signature__ = Signature([*shown.values()])  # type: ignore[attr-defined]
        called.__annotations__ = {name: p.annotation for name, p in shown.items() if p.annotation is not Parameter.empty}
        return called

    return decorate
