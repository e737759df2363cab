"""Running text: published texts, and texts that come with installed packages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.corpus.module import ENDINGS, CorpusData, read_corpus
from zoo.data.corpus.source import Source, Text, TextFile
from zoo.data.options import OptionalPath, check_integer, options_of, resolve_path
from zoo.data.text.files import OPENERS
from zoo.errors import InputError
from zoo_datasets import wordnet
from zoo_datasets.hub import attach_record, hub_changed, hub_split, load
from zoo_datasets.wordnet import Gloss

HELD = 5  # per cent of all characters that validation and test topics may have, each


@dataclass(frozen=True, kw_only=True)
class CorpusSet:
    """One published text.

    Attributes:
        name: Name of the preset.
        repository: The data set repository on the Hub, if there is one. Its column `text` holds the text, in one row or
            several. No commit of it is known: the main branch is read, and the length notices a change.
        length: Characters of all its splits together.
        file: The name that a local copy is known under, endings aside.
        defaults: Other defaults of the options of `CorpusData`.
    """

    name: str
    repository: str = ""
    length: int
    file: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


def corpus_set(**record: Any) -> Callable[..., CorpusData]:
    """Return the preset of a published text: `preset(path=None, ...)` reads a local copy or fetches it from the Hub once.

    A local copy is the file, also packed as .gz or .xz, or the folder it lies in.

    Args:
        record: The fields of `CorpusSet`; kept as the attribute `record` of the preset.
    """
    corpus_set = CorpusSet(**record)

    @options_of(CorpusData, **corpus_set.defaults)
    def preset(path: OptionalPath = None, **options: Any) -> CorpusData:
        record: CorpusSet = preset.record  # type: ignore[attr-defined]
        name = record.name
        if path is None and not record.repository:
            raise InputError(f"{name}: there is no known copy on the Hugging Face Hub; use {name}(path=...) for a local one")
        return CorpusData(partial(_read, record, None if path is None else resolve_path(path, name)), **options)

    return attach_record(preset, corpus_set)


def _read(record: CorpusSet, place: Path | None) -> Mapping[str, Source]:
    """Read a local copy by the names it is known under, or fetch the Hub's."""
    if place is None:
        return {"train": _fetched(record)}
    file = next((file for ending in ("", *ENDINGS, *OPENERS) if (file := place / f"{record.file}{ending}").is_file()), None)
    return read_corpus(place, record.name) if file is None else {"train": TextFile.of(file)}


def _fetched(record: CorpusSet) -> Text:
    """Fetch a text (once; then it is in the library's cache), its splits laid end to end."""
    name, repository = record.name, record.repository
    loaded = load(name, repository)
    parts = [hub_split(name, repository, loaded, part, ["text"]) for part in ("train", "validation", "test")]
    content = "".join(row or "" for part in parts for row in part["text"][:])
    if len(content) != record.length:
        raise hub_changed(name, repository, f"{len(content):,} characters, not {record.length:,}")
    return Text(content, repository)


shakespeare = corpus_set(name="shakespeare", repository="karpathy/tiny_shakespeare", length=1_115_394, file="input")
"""Tiny Shakespeare: 1,115,394 characters of plays, 65 different ones (Karpathy 2015).

The first 90 per cent, 1,003,854 characters, are for training, as in nanoGPT; the rest, on which nanoGPT validates, is half
validation text (55,770) and half test text.
"""

text8 = corpus_set(name="text8", repository="afmck/text8", length=100_000_000, file="text8")
"""text8: 100,000,000 letters and spaces of Wikipedia, 27 different ones (Mahoney 2006).

In the usual order: 90 million characters for training, 5 for validation, 5 for testing. A file of another size is cut into the
same shares.
"""

enwik8 = corpus_set(name="enwik8", length=100_000_000, file="enwik8", defaults={"tokenizer": "bpe", "vocab": 258})
"""enwik8: the first 100,000,000 bytes of Wikipedia with all its markup (Hutter Prize; Mahoney 2006).

In the usual order: 90 million bytes for training, 5 for validation, 5 for testing; a cut within a character moves behind it.
By default a token is a byte: `bpe` without merges. Characters made of a letter and a mark become one (Unicode's NFC), by which
a few bytes change. A file of another size is cut into the same shares. A local copy has to be given.
"""


@options_of(CorpusData)
def pydoc(**options: Any) -> CorpusData:
    """Python's help topics, half a million characters on the language; needs no network.

    Whole topics are in one split: as many as fit into 5 per cent of the characters are for validation, and as many for testing.
    The text is that of the running Python: other versions have others (see `sha256` in the info), and numbers measured with
    two versions must not be compared.

    Args:
        options: See `CorpusData`.
    """
    return CorpusData(_topics, **options)


def _topics() -> dict[str, Source]:
    from pydoc_data.topics import topics

    texts = {
        name: "\n\n\n".join(topics[topic].strip("\n") for topic in chosen) for name, chosen in divide(dict(topics)).items()
    }
    return {name: Text(text + "\n", "pydoc") for name, text in texts.items()}


def divide(topics: dict[str, str]) -> dict[str, list[str]]:
    """Choose the topics of every split: always the same, in the order of their names."""
    names = sorted(topics)
    room = sum(map(len, topics.values())) * HELD // 100
    left = {"val": room, "test": room}
    splits: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for index in np.random.RandomState(0).permutation(len(names)).tolist():
        name = names[index]
        split = next((split for split, free in left.items() if len(topics[name]) <= free), "train")
        splits[split].append(name)
        if split in left:
            left[split] -= len(topics[name])
    return {split: sorted(chosen) for split, chosen in splits.items()}


@options_of(CorpusData, tokenizer="bpe", vocab=2000)
def gloss_corpus(limit: int | None = None, **options: Any) -> CorpusData:
    """Definitions of nouns (WordNet 3.0, from the installed timm), a line each; needs no network.

        zebra: any of several fleet black-and-white striped African equines

    In random order, always the same, in the split of all gloss tasks: 17471 / 1094 / 3279 lines.

    Args:
        limit: At most so many lines of every split, stratified by topic.
        options: See `CorpusData`.
    """
    if limit is not None:
        check_integer("limit", limit, 1)
    return CorpusData(partial(_glosses, limit), **options)


def _glosses(limit: int | None) -> dict[str, Source]:
    splits = {name: [part[i] for i in wordnet.sample(part, limit)] for name, part in wordnet.cut(wordnet.read()).items()}
    return {name: Text(lines(part), "glosses") for name, part in splits.items()}


def lines(glosses: Sequence[Gloss]) -> str:
    """Write glosses down, a line each, in random order: WordNet's own is by kinship."""
    order = np.random.RandomState(0).permutation(len(glosses))
    return "".join(f"{glosses[i].lemmas}: {glosses[i].definition}\n" for i in order)
