"""Read a folder of labeled images: which of its folders are splits and which are classes, and which images can be read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.data.files import BadRows, files_in
from zoo.data.options import DataError, quote_few
from zoo.data.pixels import ENDINGS, EncodedImages, Split
from zoo.data.table import SPLITS
from zoo.errors import InputError

FOLDERS = {name: split for split, names in SPLITS.items() for name in names}


class ImageFolder(NamedTuple):
    """The splits of a folder, its classes, lines about how it was read, and the number of broken images."""

    splits: dict[str, Split]
    classes: tuple[str, ...]
    notes: list[str]
    skipped: int


def read_folder(root: Path, has_splits: bool | str, on_bad_rows: str) -> ImageFolder:
    """List the images of a folder and check each of them; for the options see `zoo.data.images.imagefolder`."""
    if has_splits not in (True, False, "auto"):
        raise InputError(f"splits={has_splits!r}: use true, false or auto")
    bad = BadRows(root, on_bad_rows, "images")
    images = readable(root, bad)
    inside: dict[str, set[str]] = {}  # the folders in every folder; empty for images that lie directly in it
    for first, *others in (name.split("/") for name in images.names):
        if others:
            inside.setdefault(first, set()).add(others[0] if len(others) > 1 else "")
    folders = split_folders(root, inside, has_splits)
    places: dict[str, list[tuple[str, int]]] = {}  # class and row of every image of a split
    for row, name in enumerate(images.names):
        *parents, _ = name.split("/")
        split = folders.get(parents.pop(0), "") if folders and parents else "train"
        if split and parents:
            places.setdefault(split, []).append((parents[0], row))
    classes = common_classes(root, folders, places)
    ids = {name: i for i, name in enumerate(classes)}
    splits = {
        split: Split(images.take(row for _, row in rows), np.array([ids[name] for name, _ in rows]), str(root))
        for split, rows in places.items()
    }
    layout = f"in the splits {', '.join(sorted(folders))}" if folders else "without splits"
    notes = [f"{root}: {len(classes)} classes ({quote_few(classes)}) {layout}"]
    notes += ignored(root, folders, classes, len(images) - sum(map(len, splits.values())))
    if bad.count:
        listed = "; ".join(f"{Path(place).relative_to(root)}: {reason}" for place, reason in bad.listed[:5])
        notes.append(f"{root}: skipped {listed}{' ...' if bad.count > 5 else ''}")
    return ImageFolder(splits, classes, notes, bad.count)


def common_classes(root: Path, folders: Mapping[str, str], places: Mapping[str, list[tuple[str, int]]]) -> tuple[str, ...]:
    """Return the classes, which must be the same in all splits."""
    if "train" not in places:
        expected = f"expected {root}/<class>/ or {root}/train/<class>/"
        if folders:
            raise InputError(f"{root}: has {', '.join(folders)} but no train folder; {expected}", code="missing")
        raise DataError(f"{root}: no folders of images ({', '.join(ENDINGS)}); {expected}")
    classes = {name for name, _ in places["train"]}
    for split, rows in places.items():
        if wrong := sorted(classes ^ {name for name, _ in rows}):
            text = f"the {split} split has other classes than train (differing: {quote_few(wrong, 5)})"
            raise DataError(f"{root}: {text}; use splits=false if the splits are classes")
    return tuple(sorted(classes))


def readable(root: Path, bad: BadRows) -> EncodedImages:
    """Return the images that can be read, by class and file name; the others are added to `bad`."""
    files = files_in(root, ENDINGS)
    images = EncodedImages(files, [file.relative_to(root).as_posix() for file in files])
    rows = []
    for row, file in enumerate(files):
        try:
            images.check(row)
            rows.append(row)
        except DataError as error:
            bad.add(str(file), str(error).removeprefix(f"{file}: "))
    bad.finish()
    return images.take(rows)


def split_folders(root: Path, inside: Mapping[str, set[str]], has_splits: bool | str) -> dict[str, str]:
    """Return the split of each folder that is one, by what is `inside` the folders; empty if they are classes.

    With `auto` folders with the names of splits are splits if they hold the same class folders as another one, or if there is
    no other one; they are classes if images lie directly in them and there are other folders.
    """
    named = {name: FOLDERS[name.lower()] for name in inside if name.lower() in FOLDERS}
    if has_splits != "auto" or not named:
        return named if has_splits else {}
    others = inside.keys() - named
    holds_images = any(inside[name] == {""} for name in named)
    shares = any((inside[name] & inside[other]) - {""} for name in named for other in inside.keys() - {name})
    if holds_images and others:
        return {}
    if holds_images or (others and not shares):
        why = f"hold other folders than {quote_few(sorted(others))}" if others else "hold images instead of class folders"
        text = f"the folders {quote_few(sorted(named))} are named like splits, but {why}"
        raise DataError(f"{root}: {text}; use splits=true, or splits=false if they are classes")
    return named


def ignored(root: Path, folders: Mapping[str, str], classes: Sequence[str], images: int) -> list[str]:
    """Return a line about the folders and the number of images that are not in a class, if there are some."""
    parents = [root, *(root / name for name in folders)]
    known = {root / name for name in folders or classes} | {root / split / name for split in folders for name in classes}
    others = sorted(path for parent in parents for path in parent.iterdir() if path.is_dir() and path not in known)
    names = [path.relative_to(root).as_posix() for path in others if not path.name.startswith(".")]
    texts = [f"folders without readable images of a class: {quote_few(names)}"] if names else []
    texts += [f"{images:,} image{'s' * (images > 1)} outside the class folders"] if images else []
    return [f"{root}: ignored {'; '.join(texts)}"] if texts else []
