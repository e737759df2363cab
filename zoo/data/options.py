"""Check the options of data sets, resolve local paths, and give presets the options of their data module."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import InputError

OptionalPath = str | Path | None
Preset = Callable[..., Any]

FIXED = ("splits", "task", "names")  # arguments of data modules that presets set themselves


class DataError(InputError):
    """An error in the user's data: a row, image or file that cannot be used."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, code="data")


def resolve_path(path: str | Path, preset: str) -> Path:
    """Expand `~` in the path of an existing file or folder; raise `InputError` for any other path."""
    expanded = Path(path).expanduser()
    if not expanded.exists():
        raise InputError(f"{preset}: {expanded} does not exist (working directory {Path.cwd()})", code="missing")
    if not expanded.is_file() and not expanded.is_dir():  # opening a pipe could wait forever
        raise DataError(f"{preset}: {expanded} is a pipe or a device; save the data to a file first")
    return expanded


def find_file(preset: str, folder: Path, names: Iterable[str]) -> Path | None:
    """Return the file in a folder with one of these names, or None; two such files are a conflict."""
    files = [file for name in names if (file := folder / name).is_file()]
    if len(files) > 1:
        raise InputError(f"{preset}: {folder} has both {files[0].name} and {files[1].name}; keep one", code="conflict")
    return files[0] if files else None


def quote_few(names: Iterable[object], most: int = 8) -> str:
    """List the first few names for a message, quoted and truncated."""
    quoted = [repr(str(name)[:40]) for name in names]
    return ", ".join(quoted[:most]) + (" ..." if len(quoted) > most else "")


def check_integer(name: str, value: object, least: int, most: int | None = None) -> int:
    """Check that an option is an integer in a range, and return it as int."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):  # type: ignore[operator]
        allowed = f"{least} or more" if most is None else f"between {least} and {most}"
        raise InputError(f"{name}={value!r}: must be a whole number, {allowed}")
    return int(value)  # type: ignore[call-overload,no-any-return]


def check_share(share: float, name: str) -> float:
    """Check that an option is a number in (0, 1), and return it."""
    if not isinstance(share, (int, float)) or not 0 < share < 1:
        raise InputError(f"{name}={share!r}: must be a number in (0, 1)")
    return share


def check_pinned(name: str, expected: str, content: bytes, package: str = "scikit-learn") -> None:
    """Raise `InputError` if the SHA-256 of data in an installed package has changed."""
    if (sha256 := hashlib.sha256(content).hexdigest()) != expected:
        digests = f"SHA-256 {sha256[:12]}, expected {expected[:12]}"
        raise InputError(f"{name}: the installed {package} has other data ({digests})", code="mismatch")


def options_of(
    module: type, *hidden: str, extra: Mapping[str, Any] | None = None, **defaults: Any
) -> Callable[[Preset], Preset]:
    """Show the options of a data module in the signature of a preset, in place of its ``**options``.

    The registry reads signatures to check options, list them, and suggest the closest name for a typo.

    Args:
        module: The data module. Its arguments with defaults are shown, except those in `FIXED` and the preset's own.
        hidden: Options of the data module that the preset does not accept.
        extra: Further options that the preset takes from its ``**options``, and their defaults.
        defaults: Defaults that differ from those of the data module.

    Example:
        >>> class Texts:
        ...     def __init__(self, splits: dict[str, str], *, tokenizer: str = "word", max_length: int | None = None): ...
        >>> @options_of(Texts, max_length=64)
        ... def trec(path: str | None = None, **options): return options
        >>> signature(trec).parameters["max_length"], trec(tokenizer="char")["max_length"]
        (<Parameter "max_length: int | None = 64">, 64)
    """
    more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=type(value)) for name, value in (extra or {}).items()
    ]
    for name, p in signature(module.__init__, eval_str=True).parameters.items():  # type: ignore[misc]
        if name not in {*FIXED, *hidden} and p.default is not Parameter.empty:
            more.append(p.replace(kind=Parameter.KEYWORD_ONLY, default=defaults.get(name, p.default)))

    def decorate(preset: Preset) -> Preset:
        preset_options = [
            p for p in signature(preset, eval_str=True).parameters.values() if p.kind is not Parameter.VAR_KEYWORD
        ]
        names = {p.name for p in preset_options}

        @wraps(preset)
        def called(*args: Any, **options: Any) -> Any:
            return preset(*args, **{**(extra or {}), **defaults, **options})

        called.__signature__ = Signature([*preset_options, *(p for p in more if p.name not in names)])  # type: ignore[attr-defined]
        return called

    return decorate
