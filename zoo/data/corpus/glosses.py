"""The embedded definitions as running text, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.data.corpus.module import CorpusData
from zoo.data.corpus.source import Text
from zoo.data.options import options_of, whole
from zoo.data.text import wordnet
from zoo.data.text.wordnet import Gloss


@options_of(CorpusData, tokenizer="bpe", vocab=2000)
def gloss_corpus(limit: int | None = None, **options: Any) -> CorpusData:
    """Definitions of nouns (WordNet 3.0, from the installed timm), a line each; needs no network.

        zebra: any of several fleet black-and-white striped African equines

    In random order, always the same, in the split of all gloss tasks: 17471 / 1094 / 3279 lines.

    Args:
        limit: At most so many lines of every split, stratified by topic.
        options: See `CorpusData`.

    Raises:
        InputError: The installed timm ships other files.
    """
    if limit is not None:
        whole("limit", limit, 1)
    splits = {name: [part[i] for i in wordnet.sample(part, limit)] for name, part in wordnet.cut(wordnet.read()).items()}
    return CorpusData({name: Text(lines(part), "glosses") for name, part in splits.items()}, **options)


def lines(glosses: Sequence[Gloss]) -> str:
    """Write glosses down, a line each, in random order: WordNet's own is by kinship."""
    order = np.random.RandomState(0).permutation(len(glosses))
    return "".join(f"{glosses[i].lemmas}: {glosses[i].definition}\n" for i in order)
