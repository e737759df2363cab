"""Pairs of texts from parallel files, and published sets of them: their records, and how a record is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

from zoo.data.options import Place, options_of, published
from zoo.data.parallel.module import ParallelData
from zoo.data.sources import existing, hub_split, listing, load, one_file
from zoo.data.text.columns import Column
from zoo.data.text.files import OPEN
from zoo.data.text.reading import SPLITS, read_pairs
from zoo.data.text.sets import hub_table
from zoo.data.text.table import Table
from zoo.errors import InputError

Sides = tuple[str, str]

PARTS = {"train": "train", "val": "validation", "test": "test"}  # our splits, and what the Hub calls them


@dataclass(frozen=True, kw_only=True)
class ParallelSet:
    """One published set of pairs.

    Attributes:
        name: Name of the preset.
        sides: Source and target by default, and the endings of their files.
        stems: What the files of a split are called before the general names, endings aside.
        repository: The data set repository on the Hub, if a copy is known to be right. No commit of any is known for certain,
            so the main branch is read, and the numbers of rows alone notice a change.
        paired: Whether the repository has a table for each pair of languages.
        column: The name of a language's column.
        rows: Rows of the Hub's splits, where they are known, by pair of languages.
        tests: The test sets that a folder may hold, as test_NAME; the first is the default, and the only one on the Hub.
        untrained: Whether a folder without training pairs trains on those to validate.
        entities: Whether HTML entities in the files are read as what they mean.
        defaults: Other defaults of the options of `ParallelData`.
    """

    name: str
    sides: Sides = ("en", "de")
    stems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    repository: str = ""
    paired: bool = False
    column: str = "{}"
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tests: tuple[str, ...] = ()
    untrained: bool = False
    entities: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


def parallel_set(**record: Any) -> Callable[..., ParallelData]:
    """Return the preset of a published set: `preset(path=None, source=..., target=..., ...)`.

    With `path` it reads a folder of parallel files NAME.SIDE, line i of one side beside line i of the other, plain or packed as
    .gz or .xz; without, it fetches the set from the Hub once. `source` and `target` are the sides, and the endings of files.

    Args:
        record: The fields of `ParallelSet`; kept as the attribute `record` of the preset.
    """
    found = ParallelSet(**record)
    own = {"source": found.sides[0], "target": found.sides[1], **({"test": found.tests[0]} if found.tests else {})}

    def make(record: ParallelSet, path: Place, source: str, target: str, test: str = "", **options: Any) -> ParallelData:
        check(record, path, (source, target), test)
        return ParallelData(partial(read, record, path, (source, target), test), **options)

    return published(found, make, options_of(ParallelData, **found.defaults), path=None, **own)  # type: ignore[no-any-return]


def check(record: ParallelSet, path: Place, sides: Sides, test: str) -> None:
    """Check the options of a preset without data."""
    if path is not None:
        return
    if not record.repository:
        names = ", ".join(f"{stem}.*" for stems in _stems(record).values() for stem in stems[:1])
        where = f"use {record.name}(path=FOLDER) with a folder of {names}, each ending in {' and '.join(sides)}"
        raise InputError(f"{record.name}: no copy on the Hugging Face Hub is known to be right; {where}")
    if len(set(sides)) == 1:
        raise InputError(f"{record.name}: source={sides[0]} and target={sides[1]} are one language; give two")
    if record.tests and test != record.tests[0]:
        wanted = f"use {record.name}(path=FOLDER, test={test})"
        raise InputError(f"{record.name}: the copy on the Hub has no test_{test}, only {record.tests[0]}; {wanted}")


def read(record: ParallelSet, path: Place, sides: Sides, test: str) -> dict[str, Table]:
    """Read a set from the Hub, or from a local copy."""
    if path is None:
        return fetch(record, sides)
    stems = _stems(record)
    if record.tests:
        name = f"test_{test}"
        stems["test"] = (name, *(SPLITS["test"] if test == record.tests[0] else ()))
    found = read_folder(record.name, path, sides, stems, untrained=record.untrained)
    if record.tests and test != record.tests[0] and "test" not in found:
        missing = f"{path} has no {name}.{sides[0]} and {name}.{sides[1]}"
        raise InputError(f"{record.name}: {missing}; use test={record.tests[0]}, or another there is")
    if record.entities:  # the texts are then kept in memory
        for split, table in found.items():
            found[split] = table.changed(texts=tuple(Column.of([*map(unescape, column)]) for column in table.texts))
    return found


def _stems(record: ParallelSet) -> dict[str, Sequence[str]]:
    return {split: (*record.stems.get(split, ()), *general) for split, general in SPLITS.items()}


def fetch(record: ParallelSet, sides: Sides) -> dict[str, Table]:
    """Fetch a set (once; then it is in the library's cache); pairs of which a side is empty are left out."""
    pair = "-".join(sorted(sides, key=lambda side: (side == "en", side)))  # English comes last, as in WMT
    loaded = load(record.name, record.repository, pair if record.paired else None, revision="main")
    columns, rows = [record.column.format(side) for side in sides], record.rows.get(pair, {})
    splits = {}
    for split, part in PARTS.items():
        data = hub_split(record.name, record.repository, loaded, part, columns, rows=rows.get(part))
        table = hub_table(data, columns).changed(source=f"{record.repository}, {part}", noun="pair")
        splits[split] = table.where(~table.blank())
    return splits


@options_of(ParallelData)
def parallel(source: str, target: str, path: str | Path | None = None, **options: Any) -> ParallelData:
    """Pairs of texts from two files, line i of one beside line i of the other, or from a folder of such files.

    `parallel(source=talks.en, target=talks.de)` reads two files, and holds 5 % of the pairs out for validation.
    `parallel(path=FOLDER, source=en, target=de)` reads train.en and train.de and, where they are, val.* (or dev.*, valid.*,
    validation.*) and test.*. Files are UTF-8, also packed (.gz, .xz).

    Args:
        source: The file of texts to read; with `path` the ending of such files.
        target: The file of what to generate of them; with `path` the ending of such files.
        path: A folder.
        **options: Of `ParallelData`.
    """
    if path is None:
        return ParallelData(partial(_two_files, source, target), **options)
    return ParallelData(partial(read_folder, "parallel", path, (source, target)), **options)


def _two_files(source: str, target: str) -> dict[str, Table]:
    return {"train": read_pairs(existing(source, "parallel"), existing(target, "parallel"))}


def read_folder(
    preset: str, path: str | Path, sides: Sides, stems: Mapping[str, Sequence[str]] = SPLITS, *, untrained: bool = False
) -> dict[str, Table]:
    """Read a folder of files STEM.SIDE, such as train.en and train.de, also packed (.gz, .xz)."""
    if sides[0] == sides[1]:
        raise InputError(f"{preset}: source={sides[0]} and target={sides[1]} are the same files; give two different endings")
    folder = existing(path, preset)
    if not folder.is_dir():
        raise InputError(f"{preset}: {folder} is no folder; give the one that holds train.{sides[0]} and train.{sides[1]}")
    found = {}
    for split, names in stems.items():
        for name in names:
            source, target = (one_file(preset, folder, [f"{name}.{side}{end}" for end in ("", *OPEN)]) for side in sides)
            if source is not None and target is not None:
                found[split] = read_pairs(source, target)
                break
            if there := source or target:
                missing = f"{name}.{sides[0] if source is None else sides[1]}"
                raise InputError(f"{preset}: {there} has no {missing} beside it; both sides of a split are needed")
    if untrained and "train" not in found and "val" in found:
        found["train"] = found.pop("val")
    if "train" not in found:
        raise InputError(f"{preset}: {path} has no train.{sides[0]} and train.{sides[1]}; there is {listing(folder)}")
    return found
