"""Resolve a spec to an entry, check its options against the signature of the plugin, and build the object."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from zoo.errors import InputError, one_line, shorten
from zoo.registry.catalogue import Entry, entries, faults, full_name, load, normalize_name, plugin_error, singular
from zoo.registry.limits import check_interval, check_plain
from zoo.registry.spec import Spec, Value, write_value

Options = TypeVar("Options")

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}


def mismatch(annotation: Any, value: object) -> str | None:
    """Describe the type that a simple annotation requires if the value has another; None if it fits or cannot be checked.

    >>> mismatch(int | None, "abc")
    'a whole number or none'
    >>> mismatch(float, 1)
    >>> mismatch(tuple[float, float], [1, 2, 3])
    '2 values, each a number'
    """
    kinds = _kinds(annotation)
    described = [_describe(kind) for kind in kinds]
    if None in described or any(_fits(kind, value) for kind in kinds):
        return None
    return " or ".join(map(str, described))


def _kinds(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _describe(kind: Any) -> str | None:
    items = get_args(kind)
    if get_origin(kind) is not tuple or items[0] not in _PLAIN:
        return _PLAIN.get(kind)
    count = "a list" if items[-1] is Ellipsis else f"{len(items)} values"
    return f"{count}, each {_PLAIN[items[0]]}"


def _fits(kind: Any, value: object) -> bool:
    if get_origin(kind) is tuple:
        items = get_args(kind)
        if not isinstance(value, list | tuple) or (items[-1] is not Ellipsis and len(value) != len(items)):
            return False
        return all(_fits(items[0], item) for item in value)
    return type(value) is kind or (kind is float and type(value) is int)


@dataclass(frozen=True)
class Signature:
    """The keyword parameters of the callable ``name`` that remain after its positional arguments are bound."""

    name: str
    parameters: dict[str, Parameter]
    bound: frozenset[str] = frozenset()
    open_ended: bool = False

    @classmethod
    def of(cls, name: str, factory: Callable[..., Any], args: tuple[object, ...]) -> "Signature":
        """Inspect a callable; raise `TypeError` if it does not accept the positional arguments."""
        try:
            form = signature(factory, eval_str=True)
        except NameError:  # annotations of third parties may name types that are not importable
            form = signature(factory)
        except (TypeError, ValueError):  # some callables written in C have no signature
            return cls(name, {}, open_ended=True)
        bound = frozenset(form.bind_partial(*args).arguments)
        kinds = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
        remaining = {key: value for key, value in form.parameters.items() if value.kind in kinds and key not in bound}
        return cls(name, remaining, bound, any(value.kind is Parameter.VAR_KEYWORD for value in form.parameters.values()))

    def accepts(self, key: str) -> bool:
        """Return whether the callable accepts this keyword."""
        return key in self.parameters or (self.open_ended and key not in self.bound)

    def check(self, options: Mapping[str, Value], context: Collection[str]) -> None:
        """Raise `InputError` if an option is unknown, has the wrong type, or is missing."""
        for option, value in options.items():
            if not self.accepts(option):
                raise InputError(
                    f"unknown option {option!r} of {self.name}:{hint(option, self.parameters)} {self.usage(context)}",
                    code="unknown",
                )
            if option in self.parameters and (kind := mismatch(self.parameters[option].annotation, value)):
                raise InputError(f"{self.name}: {option}={write_value(value)[:60]} must be {kind}")
        for key, parameter in self.parameters.items():
            if parameter.default is Parameter.empty and key not in options and key not in context:
                raise InputError(f"{self.name} requires the option {key!r}: {self.usage(context)}", code="missing")

    def usage(self, context: Collection[str] = ()) -> str:
        """Format the signature as a spec, without the keywords of the context, which the zoo adds.

        >>> def vit(data, *, classes, dim=64, **rest): ...
        >>> Signature.of("vit", vit, ("digits",)).usage(["classes"])
        'vit(dim=64, ...)'
        """
        shown = [key + _default(value.default) for key, value in self.parameters.items() if key not in context]
        return f"{self.name}({', '.join(shown + ['...'] * self.open_ended)})"


def hint(name: str, known: Collection[str]) -> str:
    """Return a suggestion of the known name that is closest to a name, or ""."""
    close = get_close_matches(name.lower(), known, 1)
    return f" did you mean {close[0]!r}?" if close else ""


def _default(value: object) -> str:
    """Format a default as in a spec, or as its type if a spec cannot express it."""
    if value is Parameter.empty:
        return ""
    try:
        return f"={write_value(value)}"  # type: ignore[arg-type]
    except InputError:
        return f"=<{type(value).__name__}>"


def build_options(kind: type[Options], values: Mapping[str, Any], prefix: str = "") -> Options:
    """Build an options dataclass from nested mappings; raise `InputError` if an option is unknown, missing or invalid.

    >>> from dataclasses import make_dataclass
    >>> build_options(make_dataclass("Bread", [("flour", str), ("salt", float, 0.1)]), {"flour": "rye"})
    Bread(flour='rye', salt=0.1)
    """
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            choices = hint(name, known) or f" use {', '.join(known)}"
            raise InputError(f"unknown option '{prefix}{name}':{choices}", code="unknown")
    checked = {name: check_option(f"{prefix}{name}", known[name].type, value) for name, value in values.items()}
    for name, value in checked.items():
        if interval := known[name].metadata.get("interval"):
            check_interval(f"{prefix}{name}", interval, value)
    try:
        return kind(**checked)
    except TypeError as error:
        raise InputError(f"{kind.__name__}: {str(error).partition(') ')[2]}") from error


def named_options(spec: str) -> dict[str, Value]:
    """Return the options of a spec, and its name as the option ``name``.

    >>> named_options("sgd(lr=.1)")
    {'name': 'sgd', 'lr': 0.1}
    """
    parsed = Spec.parse(spec)
    if "name" in parsed.options:
        raise InputError(f"{shorten(spec)} gives 'name' twice")
    return {"name": parsed.name, **parsed.options}


def check_option(name: str, kind: Any, value: Any) -> Any:
    """Convert the value of an option to its annotated type; raise `InputError` if the type does not match."""
    check_plain(name, value)
    if is_dataclass(kind) or get_origin(kind) is dict:
        if is_dataclass(kind) and isinstance(value, kind):  # type: ignore[arg-type]
            return value
        if isinstance(value, str) and "name" in getattr(kind, "__dataclass_fields__", ()):
            value = named_options(value)
        if not isinstance(value, Mapping):
            raise InputError(f"{name}={shorten(repr(value))[1:-1]} must be a dict of options by name")
        return build_options(kind, value, f"{name}.") if is_dataclass(kind) else value  # type: ignore[arg-type]
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = tuple(value) if isinstance(value, list) else value
    if get_origin(kind) is tuple and get_args(kind) == (str, ...) and isinstance(value, str):
        value = tuple(value.split(","))
    if expected := mismatch(kind, value):
        raise InputError(f"{name}={shorten(repr(value))[1:-1]} must be {expected}")
    if type(value) is int and float in (kinds := _kinds(kind)) and int not in kinds:
        try:
            return float(value)
        except OverflowError as error:
            raise InputError(f"{name}={shorten(repr(value))[1:-1]} must be a number of at most 1e308") from error
    return value


_SHOWN = 16
OF_VALUES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, AssertionError, RuntimeError)
"""Exceptions that Python, torch and other libraries raise for the values of options."""


def create(group: str, spec: object, /, *args: object, **context: object) -> Any:
    """Build the object of a spec by calling its plugin; an object that is not a spec is returned unchanged.

    The plugin receives ``args``, and those keywords of ``context`` that it accepts; options of the spec take precedence.

    Raises:
        InputError: If the plugin is unknown, or an option is unknown, missing or invalid; `PluginError` if the plugin fails.
    """
    if not isinstance(spec, str | Spec):
        return spec
    entry, spec = resolve(group, spec)
    factory = load(entry)
    form = Signature.of(entry.name, factory, args)
    form.check(spec.options, context)
    accepted = {key: value for key, value in context.items() if form.accepts(key)}
    try:
        return factory(*args, **(accepted | spec.options))
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not entry.ours:
            raise plugin_error(entry, f"fails on {shorten(str(spec))}", error) from error
        if spec.options and isinstance(error, OF_VALUES):
            raise InputError(f"{shorten(str(spec), 200)[1:-1]}: {one_line(error)}") from error
        raise  # a bug in the zoo


def resolve(group: str, spec: str | Spec) -> tuple[Entry, Spec]:
    """Return the entry of a spec and the spec in its long form, without importing the plugin.

    A name is interpreted, in this order, as the name of an entry; as `dist:name`; as `family/variant`, short for
    `family(variant=...)`; and as `name-8`, short for `name(n=8)`. Both short forms may follow `dist:`.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    available = entries(group)
    for distribution, name, options in _interpretations(spec.name):
        matches = [
            entry for entry in available if entry.name == name and distribution in {"", normalize_name(entry.distribution)}
        ]
        if len(matches) > 1:
            choices = " or ".join(f"{normalize_name(entry.distribution)}:{entry.name}" for entry in matches)
            raise InputError(f"{singular(matches[0].group)} {name!r} is provided by two packages: use {choices}")
        if matches:
            if repeated := options.keys() & spec.options.keys():
                raise InputError(f"{shorten(str(spec))} gives {repeated.pop()!r} twice: in the name and as an option")
            head = spec.name.partition(":")[0] + ":" if distribution else ""
            return matches[0], Spec(head + name, options | spec.options)
    raise _unknown(full_name(group), spec.name, available)


def _interpretations(name: str) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Yield the interpretations of a name: distribution (or ""), entry name, implied options."""
    distribution, colon, rest = name.partition(":")
    roots = [("", name), (normalize_name(distribution), rest)] if colon else [("", name)]
    yield from ((root, full, {}) for root, full in roots)
    for root, full in roots:
        family, _, variant = full.partition("/")
        if variant:
            yield root, family, {"variant": variant}
        if short := re.fullmatch(r"(.+)-([0-9]+)", full):
            yield root, short[1], {"n": int(short[2])}


def _unknown(group: str, name: str, available: tuple[Entry, ...]) -> InputError:
    """Return the error for an unknown name, with the closest name and the installed ones."""
    names = sorted({entry.name for entry in available})
    head, tail = re.fullmatch(r"(.*?)(/.*|-[0-9]+)?", name).groups("")  # type: ignore[union-attr]
    close = [match + tail for match in get_close_matches(head.lower(), names, 1) if match + tail != name]
    hint = f" did you mean {close[0]!r}?" if close else ""
    if group == "zoo.datasets" and os.path.isdir(name):
        hint = f" use imagefolder(path={name}) or text(path={name});"
    elif group == "zoo.datasets" and (head in ("csv", "tsv") or os.path.isfile(name)):
        file = name if os.path.isfile(name) else f"FILE.{head}"
        hint = f" use table(path={file}, target=COLUMN) or text(path={file});"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    installed = f"{', '.join(names[:_SHOWN]) or 'none'}{more}; see: zoo list {group.removeprefix('zoo.')}"
    broken = " (metadata of a package is broken; see: zoo doctor)" if faults() else ""
    return InputError(f"unknown {singular(group)} {shorten(name)}:{hint} installed: {installed}{broken}", code="unknown")
