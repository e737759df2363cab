"""Resolve a spec to an entry, check its options against the signature of the plugin, and build the object."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from inspect import Signature as Form
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from zoo.errors import InputError, one_line, shorten
from zoo.registry.catalogue import Entry, entries, faults, full_name, load, normalize_name, plugin_error, singular
from zoo.registry.limits import check_interval, check_plain
from zoo.registry.spec import Spec, Value, write_value

Options = TypeVar("Options")
Function = TypeVar("Function", bound=Callable[..., Any])

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}


def _mismatch(kinds: tuple[object, ...], value: object) -> str | None:
    """Describe the simple types that an option may have if the value has another; None if it fits or cannot be checked."""
    described = [_describe(kind) for kind in kinds]
    if None in described or any(_fits(kind, value) for kind in kinds):
        return None
    return " or ".join(map(str, described))


def _kinds(annotation: object) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _describe(kind: Any) -> str | None:
    items = get_args(kind)
    if get_origin(kind) is not tuple or items[0] not in _PLAIN:
        return _PLAIN.get(kind)
    count = "a list" if items[-1] is Ellipsis else f"{len(items)} values"
    return f"{count}, each {_PLAIN[items[0]]}"


def _fits(kind: object, value: object) -> bool:
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
    def of(cls, name: str, factory: Callable[..., object], args: tuple[object, ...]) -> "Signature":
        """Inspect a callable; raise `TypeError` if it does not accept the positional arguments."""
        try:
            form = evaluated_signature(factory)
        except (TypeError, ValueError):  # some callables written in C have no signature
            return cls(name, {}, open_ended=True)
        bound = frozenset(form.bind_partial(*args).arguments)
        kinds = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
        remaining = {key: value for key, value in form.parameters.items() if value.kind in kinds and key not in bound}
        return cls(name, remaining, bound, any(value.kind is Parameter.VAR_KEYWORD for value in form.parameters.values()))

    def accepts(self, key: str) -> bool:
        """Return whether the callable accepts this keyword."""
        return key in self.parameters or (self.open_ended and key not in self.bound)

    def check(self, options: Mapping[str, object], context: Collection[str] = ()) -> dict[str, Any]:
        """Return the options as values of their types; raise `InputError` if one is unknown, invalid or missing."""
        for option in options:
            if not self.accepts(option):
                text = f"unknown option {option!r} of {self.name}:{hint(option, self.parameters)} {self.usage(context)}"
                raise InputError(text, code="unknown")
        for key, parameter in self.parameters.items():
            if parameter.default is Parameter.empty and key not in options and key not in context:
                raise InputError(f"{self.name} requires the option {key!r}: {self.usage(context)}", code="missing")
        kinds = {key: parameter.annotation for key, parameter in self.parameters.items()}
        try:
            return {key: check_option(key, kinds.get(key), value) for key, value in options.items()}
        except InputError as error:
            raise InputError(f"{self.name}: {error}", code=error.code) from error

    def usage(self, context: Collection[str] = ()) -> str:
        """Format the signature as a spec, without the keywords of the context, which the zoo adds.

        >>> def vit(data, *, classes, dim=64, **rest): ...
        >>> Signature.of("vit", vit, ("digits",)).usage(["classes"])
        'vit(dim=64, ...)'
        """
        shown = [key + _default(value.default) for key, value in self.parameters.items() if key not in context]
        return f"{self.name}({', '.join(shown + ['...'] * self.open_ended)})"


def evaluated_signature(function: Callable[..., object]) -> Form:
    """Return the signature of a function or class with annotations as types, or as text if they cannot be evaluated."""
    try:
        return signature(function, eval_str=True)
    except NameError:  # annotations of third parties may name types that are not importable
        return signature(function)


def forwarded(own: Form, passed: Iterable[Parameter], **defaults: object) -> Form:
    """Return a signature in which parameters of another function replace ``**options``.

    ``defaults`` replace those of the parameters; other names are further parameters.
    """
    named = {p.name: p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD}
    if len(named) == len(own.parameters):
        return own
    keyword, added = Parameter.KEYWORD_ONLY, {p.name: p for p in passed if p.name not in named}
    further = [Parameter(name, keyword, annotation=type(value)) for name, value in defaults.items() if name not in added]
    options = [p.replace(kind=keyword, default=defaults.get(p.name, p.default)) for p in (*further, *added.values())]
    return own.replace(parameters=[*named.values(), *options])


def passes_options_to(target: Callable[..., object], *hidden: str, **defaults: object) -> Callable[[Function], Function]:
    """Show the options of a function or class in the signature of a function that passes its ``**options`` to it.

    The registry reads signatures to check options, list them, and suggest the closest name for a typo.

    Args:
        target: The function or class; its keyword-only parameters are shown.
        hidden: Options of the target that the function does not accept.
        defaults: Defaults that differ from those of the target, and further options that the function takes from ``**options``.

    Example:
        >>> class Texts:
        ...     def __init__(self, splits: dict[str, str], *, tokenizer: str = "word", max_length: int | None = None): ...
        >>> @passes_options_to(Texts, max_length=64)
        ... def trec(path: str | None = None, **options): return options
        >>> signature(trec).parameters["max_length"], trec(tokenizer="char")["max_length"]
        (<Parameter "max_length: int | None = 64">, 64)
    """
    parameters = evaluated_signature(target).parameters.values()
    passed = [p for p in parameters if p.kind is Parameter.KEYWORD_ONLY and p.name not in hidden]

    def decorate(function: Function) -> Function:
        @wraps(function)
        def called(*args: object, **options: object) -> Any:
            return function(*args, **defaults | options)

        called.__signature__ = forwarded(evaluated_signature(function), passed, **defaults)  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]

    return decorate


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


def build_options(kind: type[Options], values: Mapping[str, object], prefix: str = "") -> Options:
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
    checked = {name: _check_field(known[name], prefix, value) for name, value in values.items()}
    if missing := [name for name, item in known.items() if name not in values and _is_required(item)]:
        raise InputError(f"missing {', '.join(f'{prefix}{name}' for name in missing)}", code="missing")
    return kind(**checked)


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def _check_field(item: Field[Any], prefix: str, value: object) -> Any:
    return check_option(f"{prefix}{item.name}", item.type, value, item.metadata.get("interval"))


def check_fields(options: Any, prefix: str = "") -> None:
    """Check the values of an options dataclass, for its ``__post_init__``, and convert them to the types of its fields."""
    for item in fields(options):
        value = _check_field(item, prefix, getattr(options, item.name))
        object.__setattr__(options, item.name, value)  # also of a frozen dataclass


def named_options(spec: str) -> dict[str, Value]:
    """Return the options of a spec, and its name as the option ``name``.

    >>> named_options("sgd(lr=.1)")
    {'name': 'sgd', 'lr': 0.1}
    """
    parsed = Spec.parse(spec)
    if "name" in parsed.options:
        raise InputError(f"{shorten(spec)} gives 'name' twice")
    return {"name": parsed.name, **parsed.options}


def check_option(name: str, kind: object, value: object, interval: str | None = None) -> Any:
    """Return the value of an option in its annotated type; raise `InputError` if its type or a number in it is wrong.

    ``Annotated[float, "[0, 1)"]``, also in a union, gives an interval. Annotations other than numbers, text, booleans, None,
    tuples and dicts of them, and dataclasses, which are built from a mapping or a spec, are not checked.

    >>> check_option("rate", float, 1), check_option("betas", tuple[float, float] | None, [0.5, 1])
    (1.0, (0.5, 1))
    >>> check_option("depth", int | None, "abc")
    Traceback (most recent call last):
    ...
    zoo.errors.InputError: depth='abc' must be a whole number or none
    """
    check_plain(name, value)
    kinds: tuple[Any, ...] = ()
    for part in _kinds(kind):
        plain, *limits = get_args(part) if get_origin(part) is Annotated else (part,)
        interval = next((text for text in limits if isinstance(text, str)), interval)
        kinds += _kinds(plain)
    nested = next((part for part in kinds if is_dataclass(part)), None)
    if nested is not None:
        return _build_nested(name, nested, kinds, value)
    value = _converted(kinds, value)
    shown = f"{name}={shorten(repr(value))[1:-1]}"
    if len(kinds) == 1 and get_origin(kinds[0]) is dict and not isinstance(value, Mapping):
        raise InputError(f"{shown} must be a dict of options by name")
    if expected := _mismatch(kinds, value):
        raise InputError(f"{shown} must be {expected}")
    if interval is not None:
        check_interval(name, interval, value)
    return value


def _build_nested(name: str, kind: Any, kinds: tuple[Any, ...], value: Any) -> Any:
    """Return a dataclass from one, from options by name, or from a spec if it has the field ``name``."""
    if isinstance(value, str) and "name" in kind.__dataclass_fields__:
        value = named_options(value)
    if isinstance(value, Mapping):
        return build_options(kind, value, f"{name}.")
    if isinstance(value, kind) or any(_fits(other, value) for other in kinds):
        return value
    raise InputError(f"{name}={shorten(repr(value))[1:-1]} must be a dict of options by name")


def _converted(kinds: tuple[object, ...], value: object) -> Any:
    """Return paths as text, lists as tuples, numbers of other libraries as those of Python, and integers as floats."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list) and any(get_origin(kind) is tuple for kind in kinds):
        return tuple(value)
    if isinstance(value, str) and kinds == (tuple[str, ...],):
        return tuple(value.split(","))
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    value = int(value) if isinstance(value, Integral) else float(value)
    return float(value) if float in kinds and int not in kinds else value


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
    options = form.check(spec.options, context)
    accepted = {key: value for key, value in context.items() if form.accepts(key)}
    try:
        return factory(*args, **(accepted | options))
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
