"""Limits of the values of options: intervals, sizes, numbers of processes, and values that files can store."""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import MISSING, field
from typing import Any

from zoo.errors import InputError, shorten

LARGEST = 2**24
"""Upper limit of sizes such as a width, a depth or a batch size."""
WORKERS_PER_CORE = 8
"""Largest number of loader workers per core; most of the time they wait for files."""


def bounded(interval: str, default: object = MISSING) -> Any:
    """Return a field of an options dataclass whose numbers must lie in an interval such as ``[0, 1)``."""
    return field(default=default, metadata={"interval": interval})


def check_interval(name: str, interval: str, value: object) -> None:
    """Raise `InputError` if a number, or one of several, is outside an interval; other values are not checked.

    >>> check_interval("warmup", "[0, 1)", 0.1)
    >>> check_interval("warmup", "[0, 1)", 1)
    Traceback (most recent call last):
    ...
    zoo.errors.InputError: warmup=1: must be in [0, 1)
    """
    low, high = interval[1:-1].split(", ")
    allowed = f"be in {interval}" if high != "inf" else f"be {'at least' if interval[0] == '[' else 'above'} {low}"
    least, most = (int(end) if end.lstrip("-").isdigit() else float(end) for end in (low, high))  # exact beyond 2^53
    for number in numbers(value):
        above = least <= number if interval[0] == "[" else least < number
        below = number <= most if interval[-1] == "]" else number < most
        if not (above and below):
            raise InputError(f"{name}={value}: must {allowed if math.isfinite(number) else 'be finite'}")


def check_sizes(name: str, options: Mapping[str, object]) -> None:
    """Raise `InputError` if a number of a spec is infinite, or an integer exceeds `LARGEST`; ``name`` is the plugin's."""
    for option, value in options.items():
        for number in numbers(value):
            if abs(number) > (LARGEST if isinstance(number, int) else sys.float_info.max):
                raise InputError(f"{name}: {option}={value!r:.60} is too large: use at most {LARGEST}")


def numbers(value: object) -> list[int | float]:
    """Return the numbers in an option: the value itself or the items of a list, without bools and other values."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, int | float) and not isinstance(item, bool)]


def check_plain(name: str, value: object) -> None:
    """Raise `InputError` for text that is not valid Unicode or contains NUL, and for integers beyond the range of a float."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_plain(f"{name}.{shorten(str(key))[1:-1]}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_plain(name, item)
    elif isinstance(value, int) and value.bit_length() > 1023:
        raise InputError(f"{name}: a number of {value.bit_length()} bits: use at most 1023")
    elif isinstance(value, str) and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
        raise InputError(f"{name}={shorten(value)}: must be valid Unicode without NUL")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_processes(option: str, count: int) -> None:
    """Raise `InputError` for more processes than cores."""
    if not 1 <= count <= cores():
        raise InputError(f"{option}={count}: must be between 1 and {cores()}, the number of cores of this machine")
