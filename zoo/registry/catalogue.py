"""The plugins there are: those of installed distributions, read from their metadata, and those registered in this process."""

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
"""The distribution that registered plugins count to: `local:name` names one of them where a name is taken twice."""
_NOUNS = "algebras backbones datasets embeddings tasks reports experiments schedules catalogues commands kernels importers"
GROUPS = {noun: f"zoo.{noun}" for noun in _NOUNS.split()}
_REFERENCE = re.compile(r"([\w.]+)\s*(?::\s*([\w.]+)\s*)?(?:\[.*\]\s*)?")


@dataclass(frozen=True, order=True)
class Entry:
    """A line `name = module:attribute` in a distribution's metadata (a command: `name = module`), or a registered factory."""

    name: str
    group: str
    value: str
    distribution: str
    version: str

    @property
    def target(self) -> tuple[str, str]:
        """Module and dotted attribute; the attribute is empty for a module, and both are for a value that is neither."""
        match = _REFERENCE.fullmatch(self.value)
        return (match[1], match[2] or "") if match else ("", "")

    @property
    def ours(self) -> bool:
        """Whether the zoo itself brings this entry."""
        return normalise(self.distribution) == OURS

    @property
    def factory(self) -> Callable[..., Any] | None:
        """The callable that was registered in this process; None for an entry of a distribution."""
        return _REGISTERED.get((self.group, self.name)) if self.distribution == LOCAL else None

    def __str__(self) -> str:
        return f"{singular(self.group)} {self.name!r} of {self.distribution} {self.version}".rstrip()


@dataclass(frozen=True, order=True)
class Fault:
    """A distribution whose metadata is wrong, its location, and the reason."""

    distribution: str
    path: str
    reason: str


_REGISTERED: dict[tuple[str, str], Callable[..., Any]] = {}


@overload
def register(group: str, name: str) -> Callable[[Factory], Factory]: ...
@overload
def register(group: str, name: str, factory: Factory) -> Factory: ...
def register(group: str, name: str, factory: Any = None) -> Any:
    """Add a plugin in this process, for notebooks and scripts; an installed package uses an entry point instead.

    A name that was registered before is replaced, so that a notebook cell can run twice. A name of an installed package is
    refused: specs would name either. If a package that is installed later has it too, write `local:name`.

    Args:
        group: A key or a value of `GROUPS`, such as ``"algebras"``.
        name: How specs name it.
        factory: What builds it, as an entry point would point at, and what is returned; without it, `register` is a decorator.

    Raises:
        InputError: There is no such group, the name cannot stand in a spec or is taken, or the factory is not callable.

    Example:
        >>> register("algebras", "nothing", lambda: None)()
        >>> [entry.distribution for entry in entries("algebras") if entry.name == "nothing"]
        ['local']
        >>> unregister("algebras", "nothing")
    """
    group = full_name(group)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"{shorten(str(name))} cannot be a name in a spec (letters, digits, '_', '-', '.', '/' and ':')")
    if factory is None:
        return lambda decorated: register(group, name, decorated)
    if not callable(factory):
        raise InputError(f"{singular(group)} {name!r}: register a function that builds it, not {type(factory).__name__}")
    if taken := next((entry for entry in entries(group) if entry.name == name and entry.distribution != LOCAL), None):
        raise InputError(f"there is {taken} already: register yours under another name, such as 'my_{name}'")
    _REGISTERED[group, name] = factory
    return factory


def unregister(group: str, name: str) -> None:
    """Remove a plugin that `register` added; nothing happens if there is none."""
    _REGISTERED.pop((full_name(group), name), None)


def full_name(group: str) -> str:
    """Return the entry-point group for its short name, or raise `InputError`."""
    group = GROUPS.get(group, group)
    if group not in GROUPS.values():
        raise InputError(f"unknown group {group!r}: use one of {', '.join(GROUPS)}")
    return group


def entries(group: str, *, hidden: bool = False) -> tuple[Entry, ...]:
    """List the entries of a group (a key or a value of `GROUPS`) by name.

    The environment variable ZOO_PLUGINS narrows the installed ones, unless ``hidden``: off leaves only the zoo's own,
    dist1,dist2 those and the zoo's own.
    """
    group = full_name(group)
    matching = [entry for entry in _scan(tuple(map(str, sys.path)))[0] if entry.group == group]
    wanted = os.environ.get("ZOO_PLUGINS", "").strip()
    if wanted and not hidden:
        allowed = {OURS, *(normalise(name.strip()) for name in wanted.split(","))}  # no distribution is called "off"
        matching = [entry for entry in matching if normalise(entry.distribution) in allowed]
    registered = [
        Entry(name, where, f"{factory.__module__}:{getattr(factory, '__qualname__', name)}", LOCAL, "")
        for (where, name), factory in _REGISTERED.items()
        if where == group
    ]
    return tuple(sorted(matching + registered))


def faults() -> tuple[Fault, ...]:
    """List the distributions whose metadata could not be read, wholly or in part."""
    return _scan(tuple(map(str, sys.path)))[1]


def refresh() -> None:
    """Forget the installed entries, so that the next call scans again; a changed `sys.path` does this by itself."""
    importlib.invalidate_caches()
    _scan.cache_clear()


@lru_cache(maxsize=1)
def _scan(path: tuple[str, ...]) -> tuple[tuple[Entry, ...], tuple[Fault, ...]]:
    """Find all entries and all faults, sorted, once for each state of the path.

    Every distribution is read under its own guard: a broken one costs only its own entries, where
    `importlib.metadata.entry_points` would fail for all.
    """
    found: list[Entry] = []
    problems: list[Fault] = []
    seen: set[str] = set()
    for distribution in _installed(problems):
        # Name and version are also in the name of the metadata folder, which is there even when METADATA is not.
        folder = PurePath(str(getattr(distribution, "_path", "")))
        is_metadata = folder.suffix in {".dist-info", ".egg-info"}
        name, version, *_ = [*(folder.stem.split("-") if is_metadata else []), "", ""]
        name = normalise(name)
        if name in seen:  # Python imports from the first copy on the path, too.
            continue
        seen |= {name} - {""}
        try:
            entries, reasons = _read(distribution, name, version)
        except Exception as error:
            entries, reasons = [], [f"entry_points.txt: {type(error).__name__}: {one_line(error)}"]
        found += entries
        problems += [Fault(entries[0].distribution if entries else name, str(folder), reason) for reason in reasons]
    return tuple(sorted(found)), tuple(sorted(problems))


def _installed(problems: list[Fault]) -> Iterator[Distribution]:
    """Iterate over the distributions; a finder that fails ends the iteration and leaves a fault."""
    try:
        yield from distributions()
    except Exception as error:
        problems.append(Fault("", "", f"the search for distributions: {type(error).__name__}: {one_line(error)}"))


def _read(distribution: Distribution, name: str, version: str) -> tuple[list[Entry], list[str]]:
    """Return the entries of one distribution, and what is wrong with its metadata or with names that no spec could have."""
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
            reasons.append(f"entry_points.txt: {point.name!r} cannot be a name in a spec")
        elif (point.group, point.name) in entries:
            reasons.append(f"entry_points.txt: {point.name!r} stands twice in {point.group}")
        else:
            entries[point.group, point.name] = Entry(point.name, point.group, point.value, name, version)
    return list(entries.values()), reasons


def normalise(distribution: str) -> str:
    """Return the one spelling that names a distribution (PEP 503).

    >>> normalise("Dual-_.Numbers")
    'dual-numbers'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def singular(group: str) -> str:
    """Name one thing of a group, for messages: zoo.datasets gives 'data set'."""
    return group.removeprefix("zoo.").removesuffix("s").replace("dataset", "data set")
