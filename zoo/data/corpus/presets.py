"""The texts that language models are measured on, one function each, from the Hugging Face Hub or from local files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.data.corpus.hub import HubText, fetch
from zoo.data.corpus.local import read_corpus
from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Source
from zoo.data.corpus.textfile import TextFile
from zoo.data.options import options_of
from zoo.data.sources import existing
from zoo.errors import InputError

Place = str | Path | None

# Neither has a commit that is known: they are read from the main branch, and their lengths notice a change.
SHAKESPEARE = HubText(name="shakespeare", repository="karpathy/tiny_shakespeare", length=1_115_394)
TEXT8 = HubText(name="text8", repository="afmck/text8", length=100_000_000)


@options_of(CorpusData)
def shakespeare(path: Place = None, **options: Any) -> CorpusData:
    """Tiny Shakespeare: 1,115,394 characters of plays, 65 different ones (Karpathy 2015).

    The first 90 per cent, 1,003,854 characters, are for training, as in nanoGPT; the rest, on which nanoGPT validates, is
    half validation text (55,770) and half test text.

    Args:
        path: A local copy: the file (input.txt, also packed), or the folder it lies in.
        options: See `CorpusData`.
    """
    return CorpusData(_read("shakespeare", path, ("input.txt", "input.txt.gz", "input.txt.xz"), SHAKESPEARE), **options)


@options_of(CorpusData)
def text8(path: Place = None, **options: Any) -> CorpusData:
    """text8: 100,000,000 letters and spaces of Wikipedia, 27 different ones (Mahoney 2006).

    In the usual order: 90 million characters for training, 5 for validation, 5 for testing. A file of another size is cut into
    the same shares.

    Args:
        path: A local copy: the file (text8, also packed as .gz or .xz), or the folder it lies in.
        options: See `CorpusData`.
    """
    return CorpusData(_read("text8", path, ("text8", "text8.gz", "text8.xz", "text8.txt"), TEXT8), **options)


@options_of(CorpusData, tokenizer="bpe", vocab=258)
def enwik8(path: Place = None, **options: Any) -> CorpusData:
    """enwik8: the first 100,000,000 bytes of a copy of Wikipedia with all its markup (Hutter Prize; Mahoney 2006).

    In the usual order: 90 million bytes for training, 5 for validation, 5 for testing; a cut within a character moves behind
    it. A file of another size is cut into the same shares. By default a token is a byte: `bpe` without merges. Characters made
    of a letter and a mark become one (Unicode's NFC), by which a few bytes change.

    Args:
        path: A local copy: the file (enwik8, also packed as .gz or .xz), or the folder it lies in. It has to be given.
        options: See `CorpusData`.

    Raises:
        InputError: No path is given, or the file is wrong.
    """
    return CorpusData(_read("enwik8", path, ("enwik8", "enwik8.gz", "enwik8.xz", "enwik8.txt"), None), **options)


def _read(preset: str, path: Place, names: tuple[str, ...], record: HubText | None) -> Mapping[str, Source]:
    """Read a local copy by the names it is known under, or fetch the Hub's."""
    if path is not None:
        place = existing(path, preset)
        file = next((place / name for name in names if (place / name).is_file()), None)
        return read_corpus(place, preset) if file is None else {"train": TextFile.of(file)}
    if record is None:
        raise InputError(f"{preset}: there is no known copy on the Hugging Face Hub; use {preset}(path=...) for a local one")
    return {"train": fetch(record)}
