"""The file of a sweep: a base configuration and axes, read into the points of a grid.

The file is YAML, a base configuration and axes, each a list of values of an option or, by name, of several options::

    base: {backbone: vit, data: digits, trainer: {max_epochs: 10}}
    axes:
      algebra: [real, quaternion, phm-4]
      rate: {low: {optimizer: {lr: 0.001}}, high: {optimizer: {lr: 0.003}}}
      seed: [0, 1, 2]
    exclude:
      - {algebra: real, rate: high}

``exclude`` leaves out all combinations that agree with one of its entries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from itertools import product
from typing import Any, get_type_hints

from zoo.checkpoint.sweep import RESULTS
from zoo.errors import InputError, check_rules, shorten
from zoo.training.folder import file_name, flat, shortest
from zoo.training.options import TRAINER_ARGUMENTS, Fit, build
from zoo.training.resolve import plan
from zoo_experiments.grid import Point

KEYS = ("base", "axes", "exclude")
GROUPS = {"backbone": "zoo.backbones", "algebra": "zoo.algebras", "data": "zoo.datasets", "embedding": "zoo.embeddings"}
MOST = 10_000
"""Runs of a sweep, at most."""


def option_names() -> list[str]:
    """Return the options of a run by the names of their flags."""
    hints, found = get_type_hints(Fit), []
    for one in fields(Fit):
        kind = hints[one.name]
        found += [f"{one.name}.{part.name}" for part in fields(kind)] if is_dataclass(kind) else [one.name]
    own = {"run_dir", "resume", "trainer"}
    return [name for name in found if name not in own] + [f"trainer.{name}" for name in TRAINER_ARGUMENTS]


def points(values: Mapping[str, Any], file: str) -> list[Point]:
    """Return the runs of a sweep, the last axis moving fastest.

    Args:
        values: What the file holds.
        file: Its name, for messages.

    Raises:
        InputError: If a key, an axis or an option is unknown, the grid is empty, or two runs would have one name.
    """
    base, axes, exclude = read_parts(values, file)
    labels = {axis: dict(labelled(axis, found, file)) for axis, found in axes.items()}
    for entry in exclude:
        for axis, wanted in entry.items():
            wrong = [text for one in as_list(wanted) if (text := str(one)) not in labels.get(axis, {})]
            known = f"axis '{axis}' has {', '.join(labels[axis])}" if axis in labels else f"the axes are {', '.join(labels)}"
            check_rules((not wrong, f"'{file}' excludes {axis}={wrong[:1] and wrong[0]}, and {known}"))
    made = []
    for chosen in product(*labels.values()):
        place = dict(zip(labels, chosen, strict=True))
        if any(all(place[axis] in map(str, as_list(wanted)) for axis, wanted in entry.items()) for entry in exclude):
            continue
        options, setters = base, dict[str, str]()
        for axis, label in place.items():
            options = merged(options, labels[axis][label])
            for name in flat(labels[axis][label]):
                first = setters.setdefault(name, axis)
                check_rules(
                    (first == axis, f"axes '{first}' and '{axis}' of '{file}' both set {name}: leave it to one of them")
                )
        name = file_name("-".join(short(axis, label, axes[axis]) for axis, label in place.items()))
        made.append(Point(name, place, options))
    check_rules((bool(made), f"'{file}' excludes every run of its grid"))
    check_names(made, file)
    for point in made:
        check_point(point, file)
    return made


def check_names(made: Sequence[Point], file: str) -> None:
    """Check that every run has a folder of its own, on file systems that take capitals for small letters too."""
    seen: dict[str, str] = {}
    for point in made:
        if not point.name:
            axis, label = next(iter(point.axes.items()))
            raise InputError(f"{shorten(label)} of axis '{axis}' in '{file}' gives no name to a folder: use letters or digits")
        other = seen.setdefault(point.name.casefold(), point.name)
        if other is not point.name:
            named = (
                f"would both be named '{other}'" if other == point.name else f"'{other}' and '{point.name}' differ in case only"
            )
            raise InputError(f"two runs of '{file}' {named}: name the values of an axis, LABEL: {{OPTIONS}}")


def read_parts(values: Mapping[str, Any], file: str) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Return the base, the axes and the exclusions of a file, each of the kind it must be."""
    for key in values:
        if key not in KEYS:
            close = get_close_matches(str(key), KEYS, 1)
            hint = f"did you mean '{close[0]}'?" if close else "options of the runs go under base"
            raise InputError(f"unknown key {shorten(str(key))} in the sweep '{file}', which has {', '.join(KEYS)}: {hint}")
    base, axes, exclude = values.get("base") or {}, values.get("axes"), values.get("exclude") or []
    rows = isinstance(exclude, list) and all(
        isinstance(entry, dict) and entry and [] not in entry.values() for entry in exclude
    )
    check_rules(
        (isinstance(base, dict), f"base of the sweep '{file}' must be options of zoo fit by name"),
        (isinstance(axes, dict) and bool(axes), f"the sweep '{file}' has no axes: write axes: {{algebra: [real, ...]}}"),
        (rows, f"exclude of the sweep '{file}' must be a list such as [{{algebra: real}}]"),
    )
    assert isinstance(axes, dict)
    empty = [axis for axis, found in axes.items() if not isinstance(found, (list, dict)) or not found]
    check_rules(
        (not empty, f"axis '{empty[:1] and empty[0]}' of the sweep '{file}' needs a list of values, or options by label")
    )
    count = 1
    for found in axes.values():
        count *= len(found)
    check_rules((count <= MOST, f"the grid of '{file}' has {count:,} runs, and a sweep at most {MOST:,}"))
    return nested(base), {str(axis): found for axis, found in axes.items()}, exclude


def labelled(axis: str, found: Sequence[Any] | Mapping[str, Any], file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the label of every value of an axis, and the options it stands for."""
    if isinstance(found, Mapping):
        for label, options in found.items():
            check_rules(
                (isinstance(options, dict), f"'{label}' of axis '{axis}' in '{file}' must be options of zoo fit by name")
            )
            yield str(label), nested(options)
        return
    known = option_names()
    if axis not in known:
        close = get_close_matches(axis, known, 1) or [name for name in known if name.rpartition(".")[2] == axis][:1]
        hint = f"did you mean '{close[0]}'?" if close else "zoo fit --help lists them; or name its values, LABEL: {OPTIONS}"
        raise InputError(f"axis '{axis}' of the sweep '{file}' is no option of zoo fit: {hint}")
    if len({str(value) for value in found}) < len(found):
        raise InputError(f"axis '{axis}' of the sweep '{file}' has a value twice: keep one")
    for value in found:
        yield str(value), nested({axis: value})


def nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with names such as ``optimizer.lr`` as parts of ``optimizer``."""
    made: dict[str, Any] = {}
    for name, value in options.items():
        head, _, tail = str(name).partition(".")
        made = merged(made, {head: {tail: value}} if tail else {head: value})
    return made


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of both, the second's where both have one."""
    both = {
        name: merged(first[name], value) if isinstance(value, dict) and isinstance(first.get(name), dict) else value
        for name, value in second.items()
    }
    return {**first, **both}


def short(axis: str, label: str, found: Any) -> str:
    """Return what the name of a run has of an axis: quaternion, seed0, lr0.001."""
    if isinstance(found, Mapping):
        return label
    return shortest(GROUPS[axis], label) if axis in GROUPS else f"{axis.rpartition('.')[2]}{label}"


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and anything else as a list of it."""
    return value if isinstance(value, list) else [value]


def check_point(point: Point, file: str) -> None:
    """Check the options of a run as far as ``zoo fit`` does before it reads data."""
    own = [name for name in ("run_dir", "resume") if name in point.options]
    check_rules((not own, f"'{file}' sets {own[:1] and own[0]}: a sweep gives its runs folders of their own"))
    for name, value in flat(point.options).items():
        text = f"'{file}': {name}={value}: YAML reads this as text, write {value_as_float(value)}"
        check_rules((value_as_float(value) is None, text))
    false = [name for name in ("backbone", "algebra", "data") if isinstance(point.options.get(name), bool)]
    check_rules(
        (not false, f"'{file}': {false[:1] and false[0]} is true or false; write it in quotes, YAML reads 'no' as false")
    )
    missing = [name for name in ("backbone", "algebra") if not point.options.get(name)]
    check_rules((not missing, f"the sweep '{file}' does not say {' and '.join(missing)}: add it to base or axes"))
    trainer = point.options.get("trainer") or {}
    unknown = {str(name) for name in trainer} - set(TRAINER_ARGUMENTS) if isinstance(trainer, dict) else set()
    check_rules((not unknown, f"'{file}': unknown argument 'trainer.{min(unknown, default='')}' of Lightning's Trainer"))
    trial = isinstance(trainer, dict) and trainer.get("fast_dev_run")
    check_rules((not trial, f"'{file}' sets trainer.fast_dev_run, which saves no run: leave it out"))
    try:
        plan(build(Fit, point.options), try_network=True)
    except InputError as error:
        raise InputError(f"'{file}', run {point.name}: {error}") from error
    for name, value in point.options.items():
        rule = f"'{file}', run {point.name}: {name} has a value that {RESULTS} cannot hold: use text, numbers, lists, not nan"
        check_rules((is_json(value), rule))


def value_as_float(value: Any) -> str | None:
    """Return how YAML writes a number such as 1e-3, which it reads as text; None for any other value.

    >>> value_as_float("1e-3"), value_as_float("vit")
    ('1.0e-3', None)
    """
    match = re.fullmatch(r"([+-]?\d+)(e[+-]?\d+)", value, re.IGNORECASE) if isinstance(value, str) else None
    return f"{match[1]}.0{match[2]}" if match else None


def is_json(value: Any) -> bool:
    """Tell whether a value comes back from JSON as it was: no date, no nan, no number as a name."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
