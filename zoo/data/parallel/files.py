"""Parallel files: line i of one belongs to line i of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from zoo.data.parallel.pairs import Pairs
from zoo.data.sources import existing
from zoo.data.text.content import UNPACK, read_text
from zoo.errors import InputError

STEMS: Mapping[str, Sequence[str]] = {"train": ("train",), "val": ("val", "dev", "valid", "validation"), "test": ("test",)}
"""What the files of a split are called, endings aside; the first name that is there counts."""


def read_pairs(source: Path, target: Path) -> Pairs:
    r"""Read two files of UTF-8 lines, plain or packed (.gz, .xz); a line ends at a line feed and nowhere else.

    Raises:
        InputError: A file cannot be read or has an empty line, they have unequal numbers of lines, or they are one file.

    Example:
        >>> import tempfile
        >>> one, other = Path(tempfile.mkdtemp(), "talk.en"), Path(tempfile.mkdtemp(), "talk.de")
        >>> _ = one.write_text("Thank you.\n"), other.write_text("Danke.\n")
        >>> read_pairs(one, other).targets
        ['Danke.']
    """
    if source.exists() and target.exists() and source.samefile(target):
        raise InputError(f"{source}: one file for both sides; give the file of the sources and that of the targets")
    sources, targets = _lines(source), _lines(target)
    if len(sources) != len(targets):
        counts = f"{source}: {len(sources)} lines, but {target}: {len(targets)}"
        raise InputError(f"{counts}; line i of one belongs to line i of the other")
    return Pairs(sources, targets, str(source), (str(source), str(target)))


def read_folder(
    preset: str, path: str | Path, sides: tuple[str, str], stems: Mapping[str, Sequence[str]] = STEMS
) -> dict[str, Pairs]:
    """Read a folder of files STEM.SIDE, such as train.en and train.de, also packed (.gz, .xz).

    Args:
        preset: What an error message calls the data.
        path: The folder.
        sides: The endings of the sources and of the targets.
        stems: The names that the files of every split may have, endings aside.

    Returns:
        The pairs of every split that is there.

    Raises:
        InputError: There is no such folder, a file is there for one side only or twice, or a file is wrong; see `read_pairs`.
    """
    if sides[0] == sides[1]:
        raise InputError(f"{preset}: source={sides[0]} and target={sides[1]} are the same files; give two different endings")
    folder = existing(path, preset)
    if not folder.is_dir():
        raise InputError(f"{preset}: {folder} is no folder; give the one that holds train.{sides[0]} and train.{sides[1]}")
    found = {}
    for split, names in stems.items():
        for name in names:
            source, target = (_file(preset, folder, f"{name}.{side}") for side in sides)
            if source is not None and target is not None:
                found[split] = read_pairs(source, target)
                break
            if there := source or target:
                missing = f"{name}.{sides[0] if source is None else sides[1]}"
                raise InputError(f"{preset}: {there} has no {missing} beside it; both sides of a split are needed")
    return found


def without_training(preset: str, path: str | Path, sides: tuple[str, str]) -> InputError:
    """Say that a folder has nothing to train on, and what it has."""
    names = sorted(file.name for file in Path(path).expanduser().iterdir())
    there = ", ".join(names[:8]) or "nothing"
    return InputError(f"{preset}: {path} has no train.{sides[0]} and train.{sides[1]}; there is {there}")


def _file(preset: str, folder: Path, name: str) -> Path | None:
    """Find a file, plain or packed."""
    there = [file for ending in ("", *UNPACK) if (file := folder / f"{name}{ending}").is_file()]
    if len(there) > 1:
        raise InputError(f"{preset}: {folder} holds both {there[0].name} and {there[1].name}; keep one")
    return there[0] if there else None


def _lines(path: Path) -> list[str]:
    content = read_text(path)
    lines = [line.removesuffix("\r") for line in content.removesuffix("\n").split("\n")] if content else []
    if not lines:
        raise InputError(f"{path}: the file is empty; one text on every line is needed")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise InputError(f"{path}:{number}: an empty line; take this line out of both files, or write something")
    return lines
