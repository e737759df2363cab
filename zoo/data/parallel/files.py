"""Pairs of texts from parallel files: line i of one file belongs to line i of the other."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zoo.data.options import options_of
from zoo.data.parallel.module import ParallelData
from zoo.data.sources import existing, listing, one_file
from zoo.data.text.files import OPEN
from zoo.data.text.reading import SPLITS, read_pairs
from zoo.data.text.table import Table
from zoo.errors import InputError

Sides = tuple[str, str]
"""The file endings of source and target, such as ("en", "de")."""


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
        raise InputError(
            f"{preset}: {folder} is no folder; give the one that holds train.{sides[0]} and train.{sides[1]}", code="missing"
        )
    tables = {}
    for split, names in stems.items():
        for name in names:
            source, target = (one_file(preset, folder, [f"{name}.{side}{end}" for end in ("", *OPEN)]) for side in sides)
            if source is not None and target is not None:
                tables[split] = read_pairs(source, target)
                break
            if there := source or target:
                missing = f"{name}.{sides[0] if source is None else sides[1]}"
                raise InputError(
                    f"{preset}: {there} has no {missing} beside it; both sides of a split are needed", code="missing"
                )
    if untrained and "train" not in tables and "val" in tables:
        tables["train"] = tables.pop("val")
    if "train" not in tables:
        raise InputError(
            f"{preset}: {path} has no train.{sides[0]} and train.{sides[1]}; there is {listing(folder)}", code="missing"
        )
    return tables
