"""The embedded text: 21,844 definitions of nouns, as topics, as pairs and as a ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.data.text import wordnet
from zoo.data.text.labels import RELEVANCE
from zoo.data.text.module import TextData
from zoo.data.text.options import text_options
from zoo.data.text.splits import whole
from zoo.data.text.table import Table
from zoo.data.text.wordnet import Gloss
from zoo.errors import InputError

FIT = ("wrong", "right")
CANDIDATES = 8
PAIRED = {"train": 10000, "val": 1000, "test": 2000}
ASKED = {"train": 2000, "val": 250, "test": 500}

Row = tuple[str, ...]


@text_options
def glosses(task: str = "topics", limit: int | None = None, **options: Any) -> TextData:
    """Definitions of nouns (WordNet 3.0, from the installed timm): their topic, or which word they define; needs no network.

    TODO
    """
    tables: dict[str, tuple[str, Sequence[str], Callable[..., Table]]] = {
        "topics": ("text_classification", wordnet.CLASSES, _topics),
        "pairs": ("pair_classification", FIT, _pairs),
        "ranking": ("answer_ranking", RELEVANCE, _ranking),
    }
    if task not in tables:
        raise InputError(f"glosses: no task {task!r}; there are {', '.join(tables)}")
    if limit is not None:
        whole("limit", limit, 1)
    kind, classes, table = tables[task]
    splits = {name: table(name, split, limit) for name, split in wordnet.cut(wordnet.read()).items()}
    return TextData(splits, kind, classes=classes, **options)


def _topics(_: str, split: Sequence[Gloss], limit: int | None) -> Table:
    chosen = [split[place] for place in wordnet.sample(split, limit)]
    return Table(([gloss.definition for gloss in chosen],), [gloss.topic for gloss in chosen], source="glosses")


def _pairs(name: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Put every definition beside its own lemmas and beside those of another gloss; so come every lemmas, once right, once wrong."""
    split = [split[place] for place in wordnet.sample(split, PAIRED[name])]
    others = _others(split, np.random.RandomState(0))
    rows: list[Row] = []
    for place in wordnet.sample(split, limit):
        definition = split[place].definition
        rows += [(split[place].lemmas, definition, "right"), (split[others[place]].lemmas, definition, "wrong")]
    return _table(rows)


def _others(split: Sequence[Gloss], random: np.random.RandomState) -> list[int]:
    """Give every gloss another of its topic that has neither a lemma nor the definition of it; each is given once."""
    others = list(range(len(split)))
    for topic in wordnet.CLASSES:
        ring = random.permutation([place for place, gloss in enumerate(split) if gloss.topic == topic]).tolist()
        given = ring[1:] + ring[:1]
        for i, place in enumerate(ring):
            while split[place].alike(split[given[i]]):
                j = random.randint(len(ring))
                if not (split[place].alike(split[given[j]]) or split[ring[j]].alike(split[given[i]])):
                    given[i], given[j] = given[j], given[i]
        for place, other in zip(ring, given, strict=True):
            others[place] = other
    return others


def _ranking(name: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Put every definition beside its own lemmas and, in random order, those of other glosses of its topic."""
    random = np.random.RandomState(0)
    asked = [split[place] for place in wordnet.sample(split, ASKED[name])]
    pools = {topic: [gloss for gloss in split if gloss.topic == topic] for topic in wordnet.CLASSES}
    questions = [_candidates(gloss, pools[gloss.topic], random) for gloss in asked]
    rows: list[Row] = []
    for place in wordnet.sample(asked, limit):
        right = asked[place]
        rows += [
            (right.definition, candidate.lemmas, RELEVANCE[candidate is right], right.key) for candidate in questions[place]
        ]
    return _table(rows)


def _candidates(right: Gloss, pool: Sequence[Gloss], random: np.random.RandomState) -> list[Gloss]:
    """Draw the candidates of a question in random order: as many as the pool has, but no more than `CANDIDATES`."""
    found = [right]
    for place in random.permutation(len(pool)):
        if len(found) < CANDIDATES and not any(pool[place].alike(gloss) for gloss in found):
            found.append(pool[place])
    return [found[place] for place in random.permutation(len(found))]


def _table(rows: Sequence[Row]) -> Table:
    first, second, labels, *groups = (list(column) for column in zip(*rows, strict=True))
    return Table((first, second), labels, *groups, source="glosses")
