"""Running text: published texts, and texts in installed packages."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from zoo.data.corpus import CorpusData, Text, read_corpus
from zoo.data.options import OptionalPath
from zoo.errors import InputError
from zoo.registry import passes_options_to
from zoo_datasets.hub import hub_changed, hub_columns

HELD_PERCENT = 5  # maximum share of the validation topics, and of the test topics, in per cent of all characters


def corpus_set(name: str, length: int, file: str, repository: str = "", **defaults: Any) -> Callable[..., CorpusData]:
    """Return the preset of a published text: `preset(path=None, ...)` reads a local copy or downloads it from the Hub.

    A local copy is the file, plain or compressed (.gz, .xz), or its folder.

    Args:
        name: Name of the preset.
        length: Number of characters of all splits, which detects changes: the main branch of the Hub is read.
        file: File name of a local copy, without extensions.
        repository: The data set repository on the Hub, if there is one, with the text in its column `text`.
        defaults: Defaults of `CorpusData` that differ.
    """

    def download() -> dict[str, Text]:
        values = hub_columns(name, repository, dict.fromkeys(("train", "validation", "test")), ["text"])
        content = "".join(text or "" for (column,) in values.values() for text in column)
        if len(content) != length:
            raise hub_changed(name, repository, f"{len(content):,} characters, expected {length:,}")
        return {"train": Text(content, repository)}

    @passes_options_to(CorpusData, **defaults)
    def preset(path: OptionalPath = None, **options: Any) -> CorpusData:
        if path is None and not repository:
            raise InputError(f"{name}: not on the Hugging Face Hub; use {name}(path=...) with a local copy")
        return CorpusData(download if path is None else partial(read_corpus, name, path, file), **options)

    preset.__name__ = preset.__qualname__ = name
    return preset


shakespeare = corpus_set(name="shakespeare", repository="karpathy/tiny_shakespeare", length=1_115_394, file="input")
"""Tiny Shakespeare: 1,115,394 characters of plays, 65 different ones (Karpathy 2015).

The first 90 %, 1,003,854 characters, are for training, as in nanoGPT. Of the rest, nanoGPT's validation text, one half is for
validation (55,770) and one half for testing.
"""

text8 = corpus_set(name="text8", repository="afmck/text8", length=100_000_000, file="text8")
"""text8: 100,000,000 letters and spaces of Wikipedia, 27 different ones (Mahoney 2006).

The first 90 million characters are for training, the next 5 for validation, the last 5 for testing, as usual. A file of another
size is cut in the same proportions.
"""

enwik8 = corpus_set(name="enwik8", length=100_000_000, file="enwik8", tokenizer="bpe", vocab=258)
"""enwik8: the first 100,000,000 bytes of Wikipedia with all its markup (Hutter Prize; Mahoney 2006).

The first 90 million bytes are for training, the next 5 for validation, the last 5 for testing, as usual; a cut within a
character moves to its end. By default a token is a byte: `bpe` without merges. The text is normalized to Unicode NFC, which
changes a few bytes. A file of another size is cut in the same proportions. A local copy is required.
"""


@passes_options_to(CorpusData)
def pydoc(**options: Any) -> CorpusData:
    """Python's help topics, half a million characters about the language; needs no network access.

    Topics are not cut: validation and testing have as many as fit into 5 % of the characters each. The text depends on the
    version of Python (see `sha256` in the info), so do not compare results of two versions.
    """
    return CorpusData(_topics, **options)


def _topics() -> dict[str, Text]:
    from pydoc_data.topics import topics

    splits = divide(dict(topics)).items()
    return {name: Text("\n\n\n".join(topics[topic].strip("\n") for topic in chosen) + "\n", "pydoc") for name, chosen in splits}


def divide(topics: dict[str, str]) -> dict[str, list[str]]:
    """Choose the topics of every split, sorted by name; the choice is fixed."""
    names = sorted(topics)
    room = sum(map(len, topics.values())) * HELD_PERCENT // 100
    left = {"val": room, "test": room}
    splits: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for index in np.random.RandomState(0).permutation(len(names)).tolist():
        name = names[index]
        split = next((split for split, free in left.items() if len(topics[name]) <= free), "train")
        splits[split].append(name)
        if split in left:
            left[split] -= len(topics[name])
    return {split: sorted(chosen) for split, chosen in splits.items()}
