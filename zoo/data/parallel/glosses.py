"""The embedded pairs of texts: definitions of nouns, and the nouns."""

from __future__ import annotations

from typing import Any

from zoo.data.options import options_of, whole
from zoo.data.parallel.module import ParallelData
from zoo.data.parallel.pairs import Pairs
from zoo.data.text import wordnet


@options_of(ParallelData, vocab=2000)
def gloss_lemmas(limit: int | None = None, **options: Any) -> ParallelData:
    """Definitions of nouns (WordNet 3.0, from the installed timm), each with the first noun it defines; needs no network.

    Split as all tasks of `glosses` are, 17471 / 1094 / 3279 pairs. Only 9 % of the test nouns are training nouns too: most
    must be put together from parts, and few can be right to the letter.

    Args:
        limit: At most so many pairs of every split, stratified by topic.
        **options: Of `ParallelData`; `seed` decides the order of training only, never the pairs.

    Raises:
        InputError: The installed timm ships other files, or the limit is no number.

    Example:
        >>> gloss_lemmas(limit=90).info.sizes
        {'train': 90, 'val': 90, 'test': 90}
    """
    if limit is not None:
        whole("limit", limit, 1)
    splits = {}
    for name, glosses in wordnet.cut(wordnet.read()).items():
        chosen = [glosses[place] for place in wordnet.sample(glosses, limit)]
        lemmas = [gloss.lemmas.split(", ")[0] for gloss in chosen]
        splits[name] = Pairs([gloss.definition for gloss in chosen], lemmas, "glosses")
    return ParallelData(splits, **options)
