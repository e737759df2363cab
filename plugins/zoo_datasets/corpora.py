"""Running text: published texts, and texts in installed packages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from zoo.data.corpus import CorpusData, Text, read_corpus
from zoo.data.options import OptionalPath, options_of
from zoo.errors import InputError
from zoo_datasets.hub import attach_record, hub_changed, hub_columns

HELD_PERCENT = 5  # maximum share of the validation topics, and of the test topics, in per cent of all characters


@dataclass(frozen=True, kw_only=True)
class CorpusSet:
    """One published text.

    Attributes:
        name: Name of the preset.
        repository: The data set repository on the Hub, if there is one, with the text in one or more rows of its column
            `text`. No commit is known: the main branch is read, and `length` detects changes.
        length: Number of characters of all splits.
        file: File name of a local copy, without extensions.
        defaults: Defaults of `CorpusData` that differ.
    """

    name: str
    repository: str = ""
    length: int
    file: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


def corpus_set(**record: Any) -> Callable[..., CorpusData]:
    """Return the preset of a published text: `preset(path=None, ...)` reads a local copy or downloads it from the Hub.

    A local copy is the file, plain or compressed (.gz, .xz), or its folder.

    Args:
        record: The fields of `CorpusSet`, which is the attribute `record` of the preset.
    """
    corpus_set = CorpusSet(**record)

    @options_of(CorpusData, **corpus_set.defaults)
    def preset(path: OptionalPath = None, **options: Any) -> CorpusData:
        record: CorpusSet = preset.record  # type: ignore[attr-defined]
        name = record.name
        if path is None and not record.repository:
            raise InputError(f"{name}: not on the Hugging Face Hub; use {name}(path=...) with a local copy")
        read = partial(_download, record) if path is None else partial(read_corpus, name, path, record.file)
        return CorpusData(read, **options)

    return attach_record(preset, corpus_set)


def _download(record: CorpusSet) -> dict[str, Text]:
    """Load a text from the Hub or the cache of `datasets`, and concatenate its splits."""
    parts = dict.fromkeys(("train", "validation", "test"))
    values = hub_columns(record.name, record.repository, parts, ["text"])
    content = "".join(text or "" for (column,) in values.values() for text in column)
    if len(content) != record.length:
        raise hub_changed(record.name, record.repository, f"{len(content):,} characters, expected {record.length:,}")
    return {"train": Text(content, record.repository)}


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

enwik8 = corpus_set(name="enwik8", length=100_000_000, file="enwik8", defaults={"tokenizer": "bpe", "vocab": 258})
"""enwik8: the first 100,000,000 bytes of Wikipedia with all its markup (Hutter Prize; Mahoney 2006).

The first 90 million bytes are for training, the next 5 for validation, the last 5 for testing, as usual; a cut within a
character moves to its end. By default a token is a byte: `bpe` without merges. The text is normalized to Unicode NFC, which
changes a few bytes. A file of another size is cut in the same proportions. A local copy is required.
"""


@options_of(CorpusData)
def pydoc(**options: Any) -> CorpusData:
    """Python's help topics, half a million characters about the language; needs no network access.

    Topics are not cut: validation and testing have as many as fit into 5 % of the characters each. The text depends on the
    version of Python (see `sha256` in the info), so do not compare results of two versions.

    Args:
        options: See `CorpusData`.
    """
    return CorpusData(_topics, **options)


def _topics() -> dict[str, Text]:
    from pydoc_data.topics import topics

    texts = {
        name: "\n\n\n".join(topics[topic].strip("\n") for topic in chosen) for name, chosen in divide(dict(topics)).items()
    }
    return {name: Text(text + "\n", "pydoc") for name, text in texts.items()}


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
