"""The plugins that are installed, by group; nothing of theirs is imported to list them."""

import importlib
import os
import sys
from functools import lru_cache

from zoo.errors import InputError
from zoo.registry.records import GROUPS, OURS, Entry, Fault, normalise
from zoo.registry.scan import scan

__all__ = ["GROUPS", "OURS", "Entry", "Fault", "entries", "faults", "refresh"]


def entries(group: str, *, hidden: bool = False) -> tuple[Entry, ...]:
    """List the entries of a group by name; the environment variable ZOO_PLUGINS narrows them.

    ZOO_PLUGINS=off leaves only the zoo's own, ZOO_PLUGINS=dist1,dist2 those and the zoo's own.

    >>> "quaternoin" in [entry.name for entry in entries("algebras")]
    False

    Args:
        group: A key or a value of GROUPS.
        hidden: List what ZOO_PLUGINS hides as well.

    Raises:
        InputError: There is no such group.
    """
    group = GROUPS.get(group, group)
    if group not in GROUPS.values():
        raise InputError(f"unknown group {group!r}: use one of {', '.join(GROUPS)}")
    found = [entry for entry in _scan(_path())[0] if entry.group == group]
    wanted = os.environ.get("ZOO_PLUGINS", "").strip()
    if wanted and not hidden:
        allowed = {OURS, *(normalise(name.strip()) for name in wanted.split(","))}  # "off" is nobody's name.
        found = [entry for entry in found if normalise(entry.distribution) in allowed]
    return tuple(found)


def faults() -> tuple[Fault, ...]:
    """List the distributions whose metadata could not be read, wholly or in part."""
    return _scan(_path())[1]


def refresh() -> None:
    """Forget what was found, so that the next question looks again; a changed `sys.path` does this by itself."""
    importlib.invalidate_caches()
    _scan.cache_clear()


def _path() -> tuple[str, ...]:
    return tuple(map(str, sys.path))


@lru_cache(maxsize=1)
def _scan(path: tuple[str, ...]) -> tuple[tuple[Entry, ...], tuple[Fault, ...]]:
    """Scan once for each state of the path."""
    return scan()
