"""Running text from local files."""

from functools import partial
from pathlib import Path
from typing import Any

from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Source, TextFile
from zoo.data.options import options_of
from zoo.data.sources import existing, listing, one_file
from zoo.data.text.reading import SPLITS
from zoo.errors import InputError

ENDINGS = (".txt", ".txt.gz", ".txt.xz")


@options_of(CorpusData)
def corpus(path: str | Path, **options: Any) -> CorpusData:
    """Running text of any size, from a file or from a folder with train.txt, and if there are val.txt and test.txt.

    Args:
        path: The file or folder; files may be packed (.gz, .xz). Of a single file the first 90 per cent are for training, the
            next 5 for validation and the last 5 for testing. The tokens of a large file are kept in a file in the user's cache.
        options: See `CorpusData`.
    """
    return CorpusData(partial(read_corpus, existing(path, "corpus"), "corpus"), **options)


def read_corpus(place: Path, preset: str) -> dict[str, Source]:
    """Return the splits of a folder, or a file as the training split."""
    if place.is_file():
        return {"train": TextFile.of(place)}
    files = {split: one_file(preset, place, [f"{n}{e}" for n in names for e in ENDINGS]) for split, names in SPLITS.items()}
    if files["train"] is None:
        raise InputError(f"{preset}: {place} has no train.txt (or .txt.gz, .txt.xz); there is {listing(place)}", code="missing")
    return {split: TextFile.of(file) for split, file in files.items() if file is not None}
