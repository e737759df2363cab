"""Resolve a spec to an entry, and build the object."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from zoo.errors import InputError, one_line, shorten
from zoo.registry.catalogue import Entry, entries, faults, full_name, normalise_name, singular
from zoo.registry.loading import load, plugin_error
from zoo.registry.signatures import Signature
from zoo.registry.spec import Spec, Value

_SHOWN = 16


def create(group: str, spec: object, /, *args: object, **context: object) -> Any:
    """Build the object of a spec by calling its plugin; an object that is not a spec is returned unchanged.

    The plugin receives ``args``, and those keywords of ``context`` that it accepts; options of the spec take precedence.

    Raises:
        InputError: If the plugin is unknown, or an option is unknown, missing or invalid.
        PluginError: If a third-party plugin fails.
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
        if spec.options and isinstance(error, TypeError | ValueError):
            raise InputError(f"{shorten(str(spec), 200)[1:-1]}: {one_line(error)}") from error
        raise  # a bug in the zoo


def resolve(group: str, spec: str | Spec) -> tuple[Entry, Spec]:
    """Return the entry of a spec and the spec in its long form, without importing the plugin.

    A name is interpreted, in this order, as the name of an entry; as `dist:name`; as `family/variant`, short for
    `family(variant=...)`; and as `name-8`, short for `name(n=8)`. Both short forms may follow `dist:`.

    Raises:
        InputError: If the spec is invalid, or its name is unknown or ambiguous.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    available = entries(group)
    for distribution, name, options in _interpretations(spec.name):
        matches = [
            entry for entry in available if entry.name == name and distribution in {"", normalise_name(entry.distribution)}
        ]
        if len(matches) > 1:
            choices = " or ".join(f"{normalise_name(entry.distribution)}:{entry.name}" for entry in matches)
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
    roots = [("", name), (normalise_name(distribution), rest)] if colon else [("", name)]
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
    close = [found + tail for found in get_close_matches(head.lower(), names, 1) if found + tail != name]
    hint = f" did you mean {close[0]!r}?" if close else ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    installed = f"{', '.join(names[:_SHOWN]) or 'none'}{more}; see: zoo list {group.removeprefix('zoo.')}"
    broken = " (metadata of a package is broken; see: zoo doctor)" if faults() else ""
    return InputError(f"unknown {singular(group)} {shorten(name)}:{hint} installed: {installed}{broken}")
