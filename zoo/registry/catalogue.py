"""List plugins: entry points of installed distributions, and factories registered in this process."""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import PurePath
from typing import Any, TypeVar, overload

from zoo.errors import InputError, one_line, shorten
from zoo.registry.spec import NAME

Factory = TypeVar("Factory", bound=Callable[..., Any])

OURS = "hypercomplex-zoo"
LOCAL = "local"
"""The distribution name of registered plugins, as in `local:name`."""
_NOUNS = "algebras backbones datasets embeddings tasks reports experiments schedules catalogues commands kernels importers"
GROUPS = {noun: f"zoo.{noun}" for noun in _NOUNS.split()}
_REFERENCE = re.compile(r"([\w.]+)\s*(?::\s*([\w.]+)\s*)?(?:\[.*\]\s*)?")


@dataclass(frozen=True, order=True)
class Entry:
    """An entry point `name = module:attribute` (for a command `name = module`), or a registered factory."""

    name: str
    group: str
    value: str
    distribution: str
    version: str

    @property
    def target(self) -> tuple[str, str]:
        """Module and dotted attribute; the attribute is empty for a module, both are empty for an invalid value."""
        match = _REFERENCE.fullmatch(self.value)
        return (match[1], match[2] or "") if match else ("", "")

    @property
    def ours(self) -> bool:
        """Whether the zoo itself provides this entry."""
        return normalise_name(self.distribution) == OURS

    @property
    def factory(self) -> Callable[..., Any] | None:
        """The callable registered in this process; None for an entry point."""
        return _REGISTERED.get((self.group, self.name)) if self.distribution == LOCAL else None

    def __str__(self) -> str:
        return f"{singular(self.group)} {self.name!r} of {self.distribution} {self.version}".rstrip()


@dataclass(frozen=True, order=True)
class Fault:
    """A distribution with invalid metadata, its path, and the reason."""

    distribution: str
    path: str
    reason: str


_REGISTERED: dict[tuple[str, str], Callable[..., Any]] = {}


@overload
def register(group: str, name: str) -> Callable[[Factory], Factory]: ...
@overload
def register(group: str, name: str, factory: Factory) -> Factory: ...
def register(group: str, name: str, factory: Any = None) -> Any:
    """Register a plugin in this process, for notebooks and scripts; packages declare an entry point instead.

    A second registration of a name replaces the first, so that a notebook cell can run twice. Names of installed packages
    are rejected; if a package with the same name is installed later, use `local:name`.

    Args:
        group: A key or a value of `GROUPS`, such as ``"algebras"``.
        name: The name in specs.
        factory: The callable that builds the object; it is returned. Without it, `register` is a decorator.

    Raises:
        InputError: If the group is unknown, the name is invalid or taken, or the factory is not callable.

    Example:
        >>> register("algebras", "nothing", lambda: None)()
        >>> [entry.distribution for entry in entries("algebras") if entry.name == "nothing"]
        ['local']
        >>> unregister("algebras", "nothing")
    """
    group = full_name(group)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"invalid name {shorten(str(name))}: use letters, digits, '_', '-', '.', '/' and ':'")
    if factory is None:
        return lambda decorated: register(group, name, decorated)
    if not callable(factory):
        raise InputError(f"{singular(group)} {name!r}: expected a function that builds it, got {type(factory).__name__}")
    if taken := next((entry for entry in entries(group) if entry.name == name and entry.distribution != LOCAL), None):
        raise InputError(f"{taken} already exists: register yours under another name, such as 'my_{name}'")
    _REGISTERED[group, name] = factory
    return factory


def unregister(group: str, name: str) -> None:
    """Remove a plugin added by `register`, if it exists."""
    _REGISTERED.pop((full_name(group), name), None)


def full_name(group: str) -> str:
    """Return the entry-point group of a short or full name."""
    group = GROUPS.get(group, group)
    if group not in GROUPS.values():
        raise InputError(f"unknown group {group!r}: use one of {', '.join(GROUPS)}")
    return group


def entries(group: str, *, hidden: bool = False) -> tuple[Entry, ...]:
    """List the entries of a group (a key or a value of `GROUPS`), sorted by name.

    The environment variable ZOO_PLUGINS restricts third-party plugins to the distributions it lists, separated by commas
    (``off`` for none); ``hidden`` ignores it.
    """
    group = full_name(group)
    matching = [entry for entry in _scan(tuple(map(str, sys.path)))[0] if entry.group == group]
    variable = os.environ.get("ZOO_PLUGINS", "").strip()
    if variable and not hidden:
        allowed = {OURS, *(normalise_name(name.strip()) for name in variable.split(","))}  # no distribution is called "off"
        matching = [entry for entry in matching if normalise_name(entry.distribution) in allowed]
    registered = [
        Entry(name, where, f"{factory.__module__}:{getattr(factory, '__qualname__', name)}", LOCAL, "")
        for (where, name), factory in _REGISTERED.items()
        if where == group
    ]
    return tuple(sorted(matching + registered))


def faults() -> tuple[Fault, ...]:
    """List the distributions with unreadable or invalid metadata."""
    return _scan(tuple(map(str, sys.path)))[1]


def refresh() -> None:
    """Clear the cache of installed entries; a change of `sys.path` does so automatically."""
    importlib.invalidate_caches()
    _scan.cache_clear()


@lru_cache(maxsize=1)
def _scan(path: tuple[str, ...]) -> tuple[tuple[Entry, ...], tuple[Fault, ...]]:
    """Return all entries and faults, sorted and cached per `sys.path`.

    Errors are caught per distribution; `importlib.metadata.entry_points` would fail for all of them.
    """
    installed: list[Entry] = []
    problems: list[Fault] = []
    seen: set[str] = set()
    for distribution in _distributions(problems):
        # The name of the metadata folder has name and version even if METADATA is missing.
        folder = PurePath(str(getattr(distribution, "_path", "")))
        is_metadata = folder.suffix in {".dist-info", ".egg-info"}
        name, version, *_ = [*(folder.stem.split("-") if is_metadata else []), "", ""]
        name = normalise_name(name)
        if name in seen:  # Python also imports the first copy on the path
            continue
        seen |= {name} - {""}
        try:
            entries, reasons = _read(distribution, name, version)
        except Exception as error:
            entries, reasons = [], [f"entry_points.txt: {type(error).__name__}: {one_line(error)}"]
        installed += entries
        problems += [Fault(entries[0].distribution if entries else name, str(folder), reason) for reason in reasons]
    return tuple(sorted(installed)), tuple(sorted(problems))


def _distributions(problems: list[Fault]) -> Iterator[Distribution]:
    """Yield the distributions; if a metadata finder fails, append a fault and stop."""
    try:
        yield from distributions()
    except Exception as error:
        problems.append(Fault("", "", f"the search for distributions: {type(error).__name__}: {one_line(error)}"))


def _read(distribution: Distribution, name: str, version: str) -> tuple[list[Entry], list[str]]:
    """Return the entries of a distribution, and the faults of its metadata."""
    points = [point for point in distribution.entry_points if point.group in GROUPS.values()]
    if not points:
        return [], []
    reasons = []
    try:
        metadata = distribution.metadata
        fields = {key: " ".join(metadata[key].split()) for key in ("Name", "Version") if key in metadata}
        reasons += [] if fields.get("Name") else ["METADATA has no Name or is missing"]
        name, version = fields.get("Name") or name, fields.get("Version") or version
    except Exception as error:
        reasons.append(f"METADATA: {type(error).__name__}: {one_line(error)}")
    entries: dict[tuple[str, str], Entry] = {}
    for point in points:
        if not NAME.fullmatch(point.name):
            reasons.append(f"entry_points.txt: invalid name {point.name!r}")
        elif (point.group, point.name) in entries:
            reasons.append(f"entry_points.txt: {point.name!r} is repeated in {point.group}")
        else:
            entries[point.group, point.name] = Entry(point.name, point.group, point.value, name, version)
    return list(entries.values()), reasons


def normalise_name(distribution: str) -> str:
    """Return the normalised name of a distribution (PEP 503).

    >>> normalise_name("Dual-_.Numbers")
    'dual-numbers'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def singular(group: str) -> str:
    """Return the singular noun of a group for messages, such as 'data set' for zoo.datasets."""
    return group.removeprefix("zoo.").removesuffix("s").replace("dataset", "data set")
