"""List plugins, which are entry points of installed distributions or registered in this process, and import them."""

import ast
import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, distributions
from importlib.util import decode_source, find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from zoo.errors import InputError, check_choice, one_line, shorten
from zoo.registry.spec import NAME

Factory = TypeVar("Factory", bound=Callable[..., Any])

OURS = "hypercomplex-zoo"
LOCAL = "local"  # the distribution name of registered plugins, as in `local:name`
_TRAINED = "algebras backbones datasets embeddings tasks kernels experiments schedules"
_NOUNS = f"{_TRAINED} reports catalogues commands importers integrations"
GROUPS = {noun: f"zoo.{noun}" for noun in _NOUNS.split()}


@dataclass(frozen=True, order=True)
class Entry:
    """An entry point `name = module:attribute`, or a registered factory."""

    name: str
    group: str
    value: str
    distribution: str
    version: str

    @property
    def point(self) -> EntryPoint:
        """The entry point, which splits ``value`` into ``module`` and ``attr``."""
        return EntryPoint(self.name, self.value, self.group)

    @property
    def ours(self) -> bool:
        """Whether the zoo itself provides this entry."""
        return normalize_name(self.distribution) == OURS

    @property
    def factory(self) -> Callable[..., Any] | None:
        """The callable registered in this process; None for an entry point."""
        return _REGISTERED.get((self.group, self.name)) if self.distribution == LOCAL else None

    def __str__(self) -> str:
        return f"{singular(self.group)} {self.name!r} of {self.distribution} {self.version}".rstrip()


class Fault(NamedTuple):
    """The metadata folder of a distribution that cannot be read or has unknown groups, and the reason."""

    path: str
    reason: str


_REGISTERED: dict[tuple[str, str], Callable[..., Any]] = {}


@overload
def register(group: str, name: str) -> Callable[[Factory], Factory]: ...
@overload
def register(group: str, name: str, factory: Factory) -> Factory: ...
def register(group: str, name: str, factory: object = None) -> Any:
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
    if not NAME.fullmatch(name):
        raise InputError(f"invalid name {shorten(name)}: use letters, digits, '_', '-', '.', '/' and ':'")
    if factory is None:
        return lambda decorated: register(group, name, decorated)
    if not callable(factory):
        raise InputError(f"{name}: a {type(factory).__name__} is not callable: register a function or class")
    if taken := next((entry for entry in entries(group) if entry.name == name and entry.distribution != LOCAL), None):
        raise InputError(f"{taken} already exists: register yours under another name, such as 'my_{name}'", code="conflict")
    _REGISTERED[group, name] = factory
    return factory


def unregister(group: str, name: str) -> None:
    """Remove a plugin added by `register`, if it exists."""
    _REGISTERED.pop((full_name(group), name), None)


def full_name(group: str) -> str:
    """Return the entry-point group of a short or full name."""
    group = GROUPS.get(group, group)
    if group not in GROUPS.values():
        raise InputError(f"unknown group {group!r}: use one of {', '.join(GROUPS)}", code="unknown")
    return group


def entries(group: str) -> tuple[Entry, ...]:
    """List the entries of a group (a key or a value of `GROUPS`), sorted by name.

    The environment variable ZOO_PLUGINS restricts third-party plugins to the distributions it lists, separated by commas
    (``off`` for none).
    """
    group = full_name(group)
    matching = [entry for entry in _scan(tuple(map(str, sys.path)))[0] if entry.group == group]
    if variable := os.environ.get("ZOO_PLUGINS", "").strip():
        allowed = {OURS, *(normalize_name(name.strip()) for name in variable.split(","))}  # no distribution is called "off"
        matching = [entry for entry in matching if normalize_name(entry.distribution) in allowed]
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
    """Return all entries and faults; of two copies of a distribution the first counts.

    Errors are caught per distribution; `importlib.metadata.entry_points` would fail for all of them.
    """
    installed: dict[str, list[Entry]] = {}
    problems: list[Fault] = []
    for distribution in distributions():
        try:
            ours = [point for point in distribution.entry_points if point.group.startswith("zoo.")]
            points = [point for point in ours if point.group in GROUPS.values()]
            if points and (key := normalize_name(distribution.metadata["Name"])) not in installed:
                source = distribution.metadata["Name"], distribution.version
                installed[key] = [Entry(point.name, point.group, point.value, *source) for point in points]
            for group in {point.group for point in ours}:
                check_choice("group of entry points", group, GROUPS.values())
        except Exception as error:
            reason = f"invalid metadata ({type(error).__name__}: {one_line(error)})"
            problems.append(Fault(str(getattr(distribution, "_path", "")), reason))
    return tuple(entry for group in installed.values() for entry in group), tuple(problems)


def normalize_name(distribution: str) -> str:
    """Return the normalized name of a distribution (PEP 503).

    >>> normalize_name("Dual-_.Numbers")
    'dual-numbers'
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def singular(group: str) -> str:
    """Return the singular noun of a group for messages, such as 'data set' for zoo.datasets."""
    return group.removeprefix("zoo.").removesuffix("s").replace("dataset", "data set")


class PluginError(InputError):
    """Raised when a plugin fails; the message names the entry, its distribution, the cause and a remedy."""


def plugin_error(entry: Entry, problem: str, cause: BaseException) -> PluginError:
    """Return the error for a plugin with a problem and its cause.

    >>> print(plugin_error(Entry("dual", "zoo.algebras", "dual:dual", "duals", "1.0"), "does not load", ImportError("no jax")))
    algebra 'dual' of duals 1.0 does not load: ImportError: no jax; fix it or: pip uninstall duals
    """
    remedy = f"fix it or: pip uninstall {entry.distribution}"
    if entry.ours or entry.distribution == LOCAL:
        remedy = "see: zoo doctor" if entry.ours else "fix the registered function"
    return PluginError(f"{entry} {problem}: {type(cause).__name__}: {one_line(cause)}; {remedy}")


def load(entry: Entry) -> Any:
    """Import the module of an entry and return its callable, or raise `PluginError`.

    Output of the plugin is redirected to stderr, so that it does not corrupt `--json` output.
    """
    if (factory := entry.factory) is not None:
        return factory
    try:
        with redirect_stdout(sys.stderr):
            target = entry.point.load()
        if not callable(target):
            raise TypeError(f"{entry.value} must be callable")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may call sys.exit() or raise its own BaseException
        raise plugin_error(entry, "does not load", error) from error
    return target


def summary(entry: Entry) -> str:
    """Return the first docstring line of an entry, read from its source without importing it; "" if that fails."""
    if (factory := entry.factory) is not None:
        text = getattr(factory, "func", factory).__doc__  # the function behind a functools.partial
    else:
        try:
            text = _docstring(entry.point.module, entry.point.attr)
        except Exception:  # errors of the source are reported when it is loaded
            text = ""
    return next(iter((text or "").strip().splitlines()), "")


def _docstring(module: str, name: str) -> str | None:
    """Return the docstring of the function, class or variable of this name in a module."""
    package, *parts = module.split(".")
    root = Path(find_spec(package).origin)  # type: ignore[union-attr,arg-type]  # `find_spec("a.b")` would import `a`
    path = root.parent.joinpath(*parts) if parts else root
    file = next(file for file in (path, path.with_suffix(".py"), path / "__init__.py") if file.is_file())
    text, statements = _statements(file, file.stat().st_mtime_ns)
    for begin in (begin for begin, defined in statements if defined == name):
        ends = (end for end, _ in (*statements, (len(text), "")) if end > begin)
        if docstring := _docstring_of(text[begin:end] for end in ends):
            return docstring
    return None


@lru_cache
def _statements(file: Path, changed: int) -> tuple[str, list[tuple[int, str]]]:
    """Read a source file; return its text, and where lines begin that may begin a statement, with the names they define.

    ``changed`` is the time of the file's last change.
    """
    text = decode_source(file.read_bytes())
    lines = re.finditer(r"^(?:(?:def|class) (\w+)|(\w+)(?:: [^=\n]*)? = |[\w@#])", text, re.MULTILINE)
    return text, [(line.start(), line[1] or line[2] or "") for line in lines]


def _docstring_of(sources: Iterable[str]) -> str | None:
    """Return the docstring of the first source that is a whole statement, which is faster than to parse the file."""
    for source in sources:
        with suppress(SyntaxError), warnings.catch_warnings():  # an end inside a string; invalid escapes
            warnings.simplefilter("ignore")
            node, *below = ast.parse(source).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                return ast.get_docstring(node)
            return str(ast.literal_eval(below[0].value)) if below and isinstance(below[0], ast.Expr) else None
    return None
