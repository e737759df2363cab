"""From a spec to the one entry it names, without importing the plugin."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from zoo.errors import InputError
from zoo.registry.entries import entries, faults
from zoo.registry.literals import Value
from zoo.registry.records import GROUPS, Entry, normalise, singular
from zoo.registry.spec import Spec
from zoo.registry.text import shorten

_SHOWN = 16


def resolve(group: str, spec: str | Spec) -> tuple[Entry, Spec]:
    """Find the entry a spec names, and the spec in its long form.

    A name is read, in this order, as the name of an entry; as `dist:name`; as `family/variant`, which is
    `family(variant=...)`; and as `name-8`, which is `name(n=8)`. Both short forms may follow `dist:`.

    Args:
        group: A key or a value of `GROUPS`.
        spec: A spec or its text.

    Raises:
        InputError: No entry or more than one has the name, or a short form repeats an option.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    found = entries(group)
    for distribution, name, options in _readings(spec.name):
        matches = [entry for entry in found if entry.name == name and distribution in {"", _key(entry)}]
        if len(matches) > 1:
            raise _clash(matches)
        if not matches:
            continue
        twice = options.keys() & spec.options.keys()
        if twice:
            raise InputError(f"{shorten(str(spec))} gives {twice.pop()!r} twice: in the name and as an option")
        head = spec.name.partition(":")[0] + ":" if distribution else ""
        return matches[0], Spec(head + name, options | spec.options)
    raise _unknown(GROUPS.get(group, group), spec, found)


def _readings(name: str) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Offer all readings of a name: distribution (or ""), entry name, options that the name stands for."""
    distribution, colon, rest = name.partition(":")
    roots = [("", name), (normalise(distribution), rest)] if colon else [("", name)]
    yield from ((root, full, {}) for root, full in roots)
    for root, full in roots:
        family, slash, variant = full.partition("/")
        if slash and variant:
            yield root, family, {"variant": variant}
        short = re.fullmatch(r"(.+)-([0-9]+)", full)
        if short:
            yield root, short[1], {"n": int(short[2])}


def _key(entry: Entry) -> str:
    return normalise(entry.distribution)


def _clash(matches: list[Entry]) -> InputError:
    owners = " and ".join(f"{entry.distribution} {entry.version}".rstrip() for entry in matches)
    choices = " or ".join(f"{_key(entry)}:{entry.name}" for entry in matches)
    noun, name = singular(matches[0].group), matches[0].name
    return InputError(f"{noun} {name!r} comes from {owners}: write {choices}")


def _unknown(group: str, spec: Spec, found: tuple[Entry, ...]) -> InputError:
    """Say what was asked, what is close to it and what there is."""
    names = sorted({entry.name for entry in found})
    said = [f"unknown {singular(group)} {shorten(spec.name)}:"]
    hidden = [entry for entry in entries(group, hidden=True) if entry not in found]
    head, tail = re.fullmatch(r"(.*?)(/.*|-[0-9]+)?", spec.name).groups("")  # type: ignore[union-attr]
    tail = "/VARIANT" if tail == "/" else tail
    known = names + [f"{_key(entry)}:{entry.name}" for entry in found]
    close = [name + tail for name in get_close_matches(head.lower(), known, 1)]
    close = close or get_close_matches(spec.name.lower(), known, 1)
    if spec.name in [entry.name for entry in hidden]:
        said.append("ZOO_PLUGINS hides it;")
    elif tail == "/VARIANT" and head in known:
        said.append(f"the variant is missing: write {head + tail!r};")
    elif close:
        said.append(f"did you mean {close[0]!r}?")
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    said.append(f"installed: {', '.join(names[:_SHOWN]) or 'none'}{more}; see: zoo list {group.removeprefix('zoo.')}")
    broken = sorted({fault.distribution for fault in faults()})
    said += [f"(metadata of {', '.join(broken)} is broken; see: zoo doctor)"] if broken else []
    return InputError(" ".join(said))
