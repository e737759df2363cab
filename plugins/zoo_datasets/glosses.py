"""Definitions of 21,844 nouns in the installed timm, as topics, pairs, a ranking, or text to generate."""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from lightning.pytorch import LightningDataModule

from zoo.data.options import options_of
from zoo.data.parallel import ParallelData
from zoo.data.text.module import TextData
from zoo.data.text.splits import RELEVANCE
from zoo.data.text.table import Table
from zoo.data.text.tokenizer import Tokenizer
from zoo.errors import InputError
from zoo_datasets import wordnet
from zoo_datasets.corpora import gloss_corpus
from zoo_datasets.wordnet import Gloss

FIT = ("wrong", "right")
CANDIDATES = {"train": 4, "val": 8, "test": 8}
PAIRED = {"train": 10000, "val": 1000, "test": 2000}
ASKED = {"train": 5000, "val": 250, "test": 500}

Row = tuple[str, ...]


class _Task(NamedTuple):
    """A task on glosses, and the default tokenizer."""

    task: str
    classes: Sequence[str]
    table: Callable[[str, Sequence[Gloss], int | None], Table]
    tokenizer: str
    vocab: int


@options_of(TextData)
def glosses(
    task: str = "topics",
    limit: int | None = None,
    tokenizer: str | Tokenizer | None = None,
    vocab: int | None = None,
    stream: bool = False,
    batch_tokens: int | None = None,
    **options: Any,
) -> LightningDataModule:
    """Definitions of nouns (WordNet 3.0, from timm) for classification, ranking or generation; needs no network access.

    The splits are fixed, stratified by topic, and shared by all tasks: 17471 / 1094 / 3279 glosses. Glosses with equal
    definitions or equal lemmas are in the same split.

    `topics`, 17471 / 1094 / 3279 rows: the field of a definition, from its range of WordNet's offsets: animal 3955, artifact
    7858, body 88, food 1851, object 238, person 2844, plant 4330, substance 77, other 603.
    Test accuracy: majority 36.3 %, TF-IDF with logistic regression 89.6 % (C = 10: 92.4 %).

    `pairs`, 20000 / 2000 / 4000 rows: are these the lemmas of this definition? Every definition occurs twice, with its own
    lemmas and with those of another gloss of its topic, and so do lemmas, so that neither is informative alone. A few of the
    wrong ones would fit as well. Test accuracy: majority and logistic regression on the words of both sides 50.0 %, a threshold
    on the cosine of character 3- to 5-grams (TF-IDF) 79.2 %.

    `ranking`, 20000 / 1992 / 4000 rows: which lemmas does this definition define? 5000 / 250 / 500 questions of 4 / 8 / 8
    candidates from the same topic and split, one of them right; two validation questions have only 4. Test MRR: chance .340,
    words of both sides with logistic regression .362, the cosine of character 3- to 5-grams .718 (top-1 62.8 %).

    `language_model`: definitions as running text (`gloss_corpus`). `seq2seq`: from a definition to its noun (`gloss_lemmas`).

    Args:
        task: `topics`, `pairs`, `ranking`, `language_model` or `seq2seq`.
        limit: Maximum number of glosses of every split, stratified; `pairs` has two rows each, `ranking` one question each.
        tokenizer: See `TextData`; by default `word` for topics, `bpe` for the others.
        vocab: Maximum vocabulary size; by default 30000 for topics, 2000 for the others.
        stream: See `CorpusData`.
        batch_tokens: See `ParallelData`.
        **options: Of `TextData`, or of the data module of the task; the rows do not depend on `seed`.
    """
    if task in GENERATION:
        options |= {"tokenizer": tokenizer, "vocab": vocab, "batch_tokens": batch_tokens}
        return _generation_data(task, limit, options, stream)
    if task not in TASKS:
        raise InputError(f"glosses: unknown task={task!r}; use {', '.join([*TASKS, *GENERATION])}")
    kind = TASKS[task]
    options = {**options, "classes": options.get("classes") or kind.classes}
    tokenizer, vocab = tokenizer or kind.tokenizer, kind.vocab if vocab is None else vocab
    return TextData(partial(_tables, kind.table, limit), kind.task, tokenizer=tokenizer, vocab=vocab, **options)


@options_of(ParallelData, vocab=2000)
def gloss_lemmas(limit: int | None = None, **options: Any) -> ParallelData:
    """Definitions of nouns (WordNet 3.0, from timm), each with the first noun it defines; needs no network access.

    The splits are those of `glosses`, 17471 / 1094 / 3279 pairs. Only 9 % of the test nouns are also training nouns: most must
    be assembled from parts, and few can be exactly right.

    Args:
        limit: Maximum number of pairs of every split, stratified by topic.
        **options: Of `ParallelData`; the pairs do not depend on `seed`.
    """
    return ParallelData(partial(_tables, _lemmas, limit), **options)


def _tables(table: Callable[[str, Sequence[Gloss], int | None], Table], limit: int | None) -> dict[str, Table]:
    return {name: table(name, split, limit) for name, split in wordnet.read_splits(limit).items()}


def _lemmas(_: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Pair every definition with its first lemma."""
    chosen = [split[index] for index in wordnet.sample(split, limit)]
    return Table(([gloss.definition for gloss in chosen], [gloss.lemmas.split(", ")[0] for gloss in chosen]), source="glosses")


def _generation_data(task: str, limit: int | None, options: dict[str, Any], stream: bool) -> LightningDataModule:
    """Return the data of a generative task after checking their options."""
    preset = GENERATION[task]
    options = {name: value for name, value in options.items() if value is not None}
    allowed = signature(preset).parameters
    if stream and "stream" in allowed:  # set by the network, not by the user
        options["stream"] = stream
    if wrong := sorted(options.keys() - allowed.keys()):
        raise InputError(f"glosses(task={task}) has no option {wrong[0]}; use {', '.join(allowed)}")
    return preset(limit, **options)  # type: ignore[no-any-return]


def _topics(_: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Label definitions by topic; a limit keeps the first gloss of every topic, so that all splits have the same topics."""
    first = {gloss.topic: index for index, gloss in reversed(list(enumerate(split)))}
    if limit is not None and limit < len(first):
        first = {}
    rest = [index for index in range(len(split)) if index not in first.values()]
    more = wordnet.sample([split[index] for index in rest], None if limit is None else limit - len(first))
    chosen = [split[index] for index in sorted([*first.values(), *(rest[index] for index in more)])]
    return Table(([gloss.definition for gloss in chosen],), [gloss.topic for gloss in chosen], source="glosses")


def _pairs(name: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Pair every definition with its own lemmas and with those of another gloss; each lemma is right once and wrong once."""
    split = [split[index] for index in wordnet.sample(split, PAIRED[name])]
    others = _others(split, np.random.RandomState(0))
    rows: list[Row] = []
    for index in wordnet.sample(split, limit):
        definition = split[index].definition
        rows += [(split[index].lemmas, definition, "right"), (split[others[index]].lemmas, definition, "wrong")]
    return _table(rows)


def _others(split: Sequence[Gloss], random: np.random.RandomState) -> list[int]:
    """Permute the glosses of every topic such that none is assigned one with a common lemma or the same definition."""
    others = list(range(len(split)))
    for topic in wordnet.CLASSES:
        ring = random.permutation([index for index, gloss in enumerate(split) if gloss.topic == topic]).tolist()
        given = ring[1:] + ring[:1]
        for i, index in enumerate(ring):
            while split[index].alike(split[given[i]]):
                j = random.randint(len(ring))
                if not (split[index].alike(split[given[j]]) or split[ring[j]].alike(split[given[i]])):
                    given[i], given[j] = given[j], given[i]
        for index, other in zip(ring, given, strict=True):
            others[index] = other
    return others


def _ranking(name: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Pair every definition with its own lemmas and, in random order, with those of other glosses of its topic."""
    random = np.random.RandomState(0)
    asked = [split[index] for index in wordnet.sample(split, ASKED[name])]
    pools = {topic: [gloss for gloss in split if gloss.topic == topic] for topic in wordnet.CLASSES}
    questions = [_candidates(gloss, pools[gloss.topic], CANDIDATES[name], random) for gloss in asked]
    rows: list[Row] = []
    for index in wordnet.sample(asked, limit):
        right = asked[index]
        rows += [
            (right.definition, candidate.lemmas, RELEVANCE[candidate is right], right.key) for candidate in questions[index]
        ]
    return _table(rows)


def _candidates(right: Gloss, pool: Sequence[Gloss], count: int, random: np.random.RandomState) -> list[Gloss]:
    """Draw up to `count` candidates of a question in random order."""
    candidates = [right]
    for index in random.permutation(len(pool)):
        if len(candidates) < count and not any(pool[index].alike(gloss) for gloss in candidates):
            candidates.append(pool[index])
    return [candidates[index] for index in random.permutation(len(candidates))]


def _table(rows: Sequence[Row]) -> Table:
    first, second, labels, *groups = (list(column) for column in zip(*rows, strict=True))
    return Table((first, second), labels, groups[0] if groups else None, source="glosses")


TASKS = {
    "topics": _Task("text_classification", wordnet.CLASSES, _topics, "word", 30000),
    # Lemmas are rare words, which share only parts with a definition.
    "pairs": _Task("pair_classification", FIT, _pairs, "bpe", 2000),
    "ranking": _Task("answer_ranking", RELEVANCE, _ranking, "bpe", 2000),
}

GENERATION: dict[str, Callable[..., Any]] = {"language_model": gloss_corpus, "seq2seq": gloss_lemmas}
