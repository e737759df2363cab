"""Anyone's running text, from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Source
from zoo.data.corpus.textfile import TextFile
from zoo.data.options import options_of
from zoo.data.sources import existing
from zoo.data.text.copies import FILES
from zoo.errors import InputError

ENDINGS = (".txt", ".txt.gz", ".txt.xz")


@options_of(CorpusData)
def corpus(path: str | Path, **options: Any) -> CorpusData:
    """Running text of any size, from a file or from a folder with train.txt, and if there are val.txt and test.txt.

    Args:
        path: The file or folder; files may be packed (.gz, .xz). Of a single file the first 90 per cent are for training, the
            next 5 for validation and the last 5 for testing. The tokens of a large file are kept in a file in the user's cache.
        options: See `CorpusData`.

    Raises:
        InputError: A file is missing, empty, too short or not UTF-8; the message says which.
    """
    return CorpusData(read_corpus(existing(path, "corpus"), "corpus"), **options)


def read_corpus(place: Path, preset: str) -> dict[str, Source]:
    """Return the splits of a folder, or a file as the training split.

    Raises:
        InputError: The folder has no training file, or two for one split.
    """
    if place.is_file():
        return {"train": TextFile.of(place)}
    files = {split: file for split, names in FILES.items() if (file := _file(place, names, preset)) is not None}
    if "train" not in files:
        there = ", ".join(file.name for file in sorted(place.iterdir())[:8]) or "nothing"
        raise InputError(f"{preset}: {place} has no train.txt (or .txt.gz, .txt.xz); there is {there}")
    return {split: TextFile.of(file) for split, file in files.items()}


def _file(folder: Path, names: tuple[str, ...], preset: str) -> Path | None:
    """Return the one file of a split."""
    found = [file for name in names for ending in ENDINGS if (file := folder / f"{name}{ending}").is_file()]
    if len(found) > 1:
        raise InputError(f"{preset}: {folder} holds both {found[0].name} and {found[1].name}; keep one")
    return found[0] if found else None
