"""Resolve a spec to an entry, and build the object."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from zoo.errors import InputError, one_line, shorten
from zoo.registry.catalogue import Entry, entries, faults, full_name, normalise_name, singular
from zoo.registry.loading import load, plugin_error
from zoo.registry.signatures import Signature
from zoo.registry.spec import Spec, Value

_SHOWN = 16
_CLOSE = 0.6
"""Minimum similarity of a suggested name, the default of `difflib.get_close_matches`."""


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
    form = signature_of(entry, factory, *args)
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


def signature_of(entry: Entry, factory: Any, /, *args: object) -> Signature:
    """Return the signature of a plugin called with these positional arguments.

    Raises:
        PluginError: If the plugin does not accept them.
    """
    try:
        return Signature.of(entry.name, factory, args)
    except TypeError as error:
        raise plugin_error(entry, f"does not accept {len(args)} positional arguments", error) from error


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
            raise _ambiguous(matches)
        if not matches:
            continue
        if repeated := options.keys() & spec.options.keys():
            raise InputError(f"{shorten(str(spec))} gives {repeated.pop()!r} twice: in the name and as an option")
        head = spec.name.partition(":")[0] + ":" if distribution else ""
        return matches[0], Spec(head + name, options | spec.options)
    raise _unknown(full_name(group), spec, available)


def _interpretations(name: str) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Yield the interpretations of a name: distribution (or ""), entry name, implied options."""
    distribution, colon, rest = name.partition(":")
    roots = [("", name), (normalise_name(distribution), rest)] if colon else [("", name)]
    yield from ((root, full, {}) for root, full in roots)
    for root, full in roots:
        family, slash, variant = full.partition("/")
        if slash and variant:
            yield root, family, {"variant": variant}
        short = re.fullmatch(r"(.+)-([0-9]+)", full)
        if short:
            yield root, short[1], {"n": int(short[2])}


def _ambiguous(matches: list[Entry]) -> InputError:
    owners = " and ".join(f"{entry.distribution} {entry.version}".rstrip() for entry in matches)
    choices = " or ".join(f"{normalise_name(entry.distribution)}:{entry.name}" for entry in matches)
    return InputError(f"{singular(matches[0].group)} {matches[0].name!r} is provided by {owners}: use {choices}")


def _unknown(group: str, spec: Spec, available: tuple[Entry, ...]) -> InputError:
    """Return the error for an unknown name, with a suggestion and the installed names."""
    names = sorted({entry.name for entry in available})
    parts = [f"unknown {singular(group)} {shorten(spec.name)}:"]
    hidden = [entry for entry in entries(group, hidden=True) if entry not in available]
    head, tail = re.fullmatch(r"(.*?)(/.*|-[0-9]+)?", spec.name).groups("")  # type: ignore[union-attr]
    known = names + [f"{normalise_name(entry.distribution)}:{entry.name}" for entry in available]
    if spec.name in [entry.name for entry in hidden]:
        parts.append("it is hidden by ZOO_PLUGINS;")
    elif tail == "/" and head in known:
        parts.append(f"missing variant: use '{head}/VARIANT';")
    elif close := closest(head.lower(), spec.name.lower(), "/VARIANT" if tail == "/" else tail, known):
        parts.append(f"did you mean {close!r}?")
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    parts.append(f"installed: {', '.join(names[:_SHOWN]) or 'none'}{more}; see: zoo list {group.removeprefix('zoo.')}")
    broken = sorted({fault.distribution for fault in faults()})
    parts += [f"(metadata of {', '.join(broken)} is broken; see: zoo doctor)"] if broken else []
    return InputError(" ".join(parts))


def closest(head: str, whole: str, tail: str, known: list[str]) -> str:
    """Return the known name most similar to a whole name, or to its head, with the tail appended; "" if none is close.

    >>> closest("phn", "phn-4", "-4", ["phm", "real"]), closest("cyclic", "cyclic-5", "-5", ["cyclic5"])
    ('phm-4', 'cyclic5')
    """
    candidates = [(SequenceMatcher(None, name, head).ratio(), name + tail) for name in known]
    candidates += [(SequenceMatcher(None, name, whole).ratio(), name) for name in known]
    ratio, name = max(candidates, key=lambda candidate: candidate[0], default=(0.0, ""))
    return name if ratio >= _CLOSE else ""
