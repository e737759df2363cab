"""Definitions of 21,844 nouns of WordNet 3.0 in the installed timm, as topics, pairs, a ranking, or text to generate."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from lightning.pytorch import LightningDataModule

from zoo.data.corpus import CorpusData, Text
from zoo.data.loader import Array
from zoo.data.options import check_pinned
from zoo.data.parallel import ParallelData
from zoo.data.splits import RELEVANCE, stratified
from zoo.data.table import Table
from zoo.data.text import TextData
from zoo.data.tokenizer import Tokenizer
from zoo.errors import InputError
from zoo.registry import check_option, passes_options_to

FILE_SHA256 = {
    "imagenet_synset_to_definition.txt": "191e227d48fc8c7b7e2d2a3cac41fc8b2eb517d9d2819d0edbc91c5767250eed",
    "imagenet_synset_to_lemma.txt": "1b8babda187421a4bde0c9c5a197c36f6bdda962f7ca11ffb2813806cbb2178f",
}
RELEASES = "1.0.16 to 1.0.31"  # of timm; the oldest and the newest are known to contain these files
OTHER = "other"
# In WordNet the nouns of a field have consecutive offsets. First and last noun of each field in timm:
TOPICS = {
    "animal": (1314388, 2665250),  # pest ... hogchoker; the next is aba, a fabric
    "artifact": (2665985, 4615644),  # aba ... zoot suit; the next is shading
    "body": (5218119, 5604434),  # cadaver ... abdominal wall; around it: center of curvature, lemon (the flavor)
    "food": (7556406, 7938594),  # comfort food ... mold (a dish); around it: three-day event, people
    "object": (9186592, 9481120),  # abyssal zone ... xenolith; around it: Swiss canton, Circe
    "person": (9493983, 11346873),  # Circe ... Townes; the next is dust storm
    "plant": (11530008, 13240362),  # microflora ... tree of knowledge; around it: wave (weather), orangery
    "substance": (14582716, 15102894),  # micronutrient ... knothole, the last of all; before it: wall (a situation)
}
CLASSES = tuple(sorted((*TOPICS, OTHER)))
SHARES = {"test": 0.15, "val": 0.05}


@dataclass(frozen=True)
class Gloss:
    """One noun."""

    key: str
    lemmas: str
    definition: str
    topic: str

    @property
    def names(self) -> set[str]:
        """The lemmas in lower case."""
        return set(self.lemmas.lower().split(", "))

    def alike(self, other: Self) -> bool:
        """Whether two glosses have a common lemma or the same definition."""
        return bool(self.names & other.names) or words(self.definition) == words(other.definition)


def read_glosses() -> list[Gloss]:
    """Read all glosses in the order of their offsets."""
    definitions, lemmas = (_lines(name) for name in FILE_SHA256)
    return [Gloss(key, lemmas[key], definition, topic(key)) for key, definition in definitions.items()]


def read_splits(limit: int | None) -> dict[str, list[Gloss]]:
    """Read the glosses of every split after checking the option `limit`."""
    check_option("limit", int | None, limit, "[1, inf)")
    return cut(read_glosses())


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, without punctuation."""
    return tuple(re.findall(r"\w+", text.lower()))


def topic(key: str) -> str:
    """Return the field of a noun."""
    return next((name for name, (first, last) in TOPICS.items() if first <= int(key[1:]) <= last), OTHER)


def cut(glosses: Sequence[Gloss]) -> dict[str, list[Gloss]]:
    """Cut glosses into fixed training, validation and test splits: 80, 5 and 15 %, stratified by topic."""
    roots = _related_roots(glosses)
    unique = np.flatnonzero(roots == np.arange(len(roots)))
    topics = np.array([CLASSES.index(gloss.topic) for gloss in glosses])
    test = stratified(topics[unique], round(SHARES["test"] * len(unique)))
    rest = unique[~test]
    val = stratified(topics[rest], round(SHARES["val"] * len(unique)))
    parts = {"train": rest[~val], "val": rest[val], "test": unique[test]}
    return {name: [glosses[i] for i in np.flatnonzero(np.isin(roots, chosen)).tolist()] for name, chosen in parts.items()}


def sample(glosses: Sequence[Gloss], count: int | None) -> list[int]:
    """Choose the indices of at most `count` glosses, stratified by topic."""
    if count is None or count >= len(glosses):
        return list(range(len(glosses)))
    topics = np.array([CLASSES.index(gloss.topic) for gloss in glosses])
    return [int(index) for index in np.flatnonzero(stratified(topics, count))]


def _lines(name: str) -> dict[str, str]:
    package = find_spec("timm")  # timm itself takes seconds to import
    folder = Path(package.origin).parent if package is not None and package.origin else Path()
    try:
        content = (folder / "data" / "_info" / name).read_bytes()
    except OSError as error:
        raise InputError(f"glosses: the installed timm has no {name}; install timm {RELEASES}", code="mismatch") from error
    check_pinned("glosses", FILE_SHA256[name], content, f"timm (expected {RELEASES})")
    return dict(line.split("\t") for line in content.decode("utf-8").splitlines())


def _related_roots(glosses: Sequence[Gloss]) -> Array:
    """Return for every gloss the index of the first one it is connected to by equal definitions or lemmas, [N]."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first: dict[tuple[int, tuple[str, ...]], int] = {}
    texts = [(words(gloss.definition), words(gloss.lemmas)) for gloss in glosses]
    edges = np.array([(first.setdefault(key, i), i) for i, pair in enumerate(texts) for key in enumerate(pair)])
    _, components = connected_components(coo_array((np.ones(len(edges)), edges.T), shape=(len(glosses),) * 2), directed=False)
    _, roots = np.unique(components, return_index=True)
    return np.asarray(roots[components])


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


@passes_options_to(TextData)
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

    `limit` is the maximum number of glosses of every split, stratified; `pairs` has two rows each, `ranking` one question each.
    The default tokenizer is `word` with 30000 tokens for topics, `bpe` with 2000 for the others. The other options are those of
    the data module of the task.
    """
    if task in GENERATION:
        options |= {"tokenizer": tokenizer, "vocab": vocab, "batch_tokens": batch_tokens}
        return _generation_data(task, limit, options, stream)
    if task not in TASKS:
        raise InputError(f"glosses: unknown task={task!r}; use {', '.join([*TASKS, *GENERATION])}", code="unknown")
    kind = TASKS[task]
    options = {**options, "classes": options.get("classes") or kind.classes}
    tokenizer, vocab = tokenizer or kind.tokenizer, kind.vocab if vocab is None else vocab
    return TextData(partial(_tables, kind.table, limit), kind.task, tokenizer=tokenizer, vocab=vocab, **options)


@passes_options_to(CorpusData, tokenizer="bpe", vocab=2000)
def gloss_corpus(limit: int | None = None, **options: Any) -> CorpusData:
    """Definitions of nouns (WordNet 3.0, from the installed timm), one per line; needs no network access.

        zebra: any of several fleet black-and-white striped African equines

    In a fixed random order, with the splits of all gloss tasks: 17471 / 1094 / 3279 lines.
    """
    return CorpusData(partial(_gloss_texts, limit), **options)


def _gloss_texts(limit: int | None) -> dict[str, Text]:
    splits = read_splits(limit)
    return {name: Text(_gloss_lines([part[i] for i in sample(part, limit)]), "glosses") for name, part in splits.items()}


def _gloss_lines(glosses: Sequence[Gloss]) -> str:
    """Return the lines of some glosses in random order, since WordNet sorts related ones together."""
    order = np.random.RandomState(0).permutation(len(glosses))
    return "".join(f"{glosses[i].lemmas}: {glosses[i].definition}\n" for i in order)


@passes_options_to(ParallelData, vocab=2000)
def gloss_lemmas(limit: int | None = None, **options: Any) -> ParallelData:
    """Definitions of nouns (WordNet 3.0, from timm), each with the first noun it defines; needs no network access.

    The splits are those of `glosses`, 17471 / 1094 / 3279 pairs. Only 9 % of the test nouns are also training nouns: most must
    be assembled from parts, and few can be exactly right.
    """
    return ParallelData(partial(_tables, _lemma_pairs, limit), **options)


def _tables(table: Callable[[str, Sequence[Gloss], int | None], Table], limit: int | None) -> dict[str, Table]:
    return {name: table(name, split, limit) for name, split in read_splits(limit).items()}


def _lemma_pairs(_: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Pair every definition with its first lemma."""
    chosen = [split[index] for index in sample(split, limit)]
    lemmas = [gloss.lemmas.split(", ")[0] for gloss in chosen]
    return Table({"first": [gloss.definition for gloss in chosen], "second": lemmas}, "glosses")


def _generation_data(task: str, limit: int | None, options: dict[str, Any], stream: bool) -> LightningDataModule:
    """Return the data of a generative task after checking their options."""
    preset = GENERATION[task]
    options = {name: value for name, value in options.items() if value is not None}
    allowed = signature(preset).parameters
    if stream and "stream" in allowed:  # set by the network, not by the user
        options["stream"] = stream
    if wrong := sorted(options.keys() - allowed.keys()):
        raise InputError(f"glosses(task={task}) has no option {wrong[0]}; use {', '.join(allowed)}", code="unknown")
    return preset(limit, **options)  # type: ignore[no-any-return]


def _topics(_: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Label definitions by topic; a limit keeps the first gloss of every topic, so that all splits have the same topics."""
    first = {gloss.topic: index for index, gloss in reversed(list(enumerate(split)))}
    if limit is not None and limit < len(first):
        first = {}
    rest = [index for index in range(len(split)) if index not in first.values()]
    more = sample([split[index] for index in rest], None if limit is None else limit - len(first))
    chosen = [split[index] for index in sorted([*first.values(), *(rest[index] for index in more)])]
    return Table({"text": [gloss.definition for gloss in chosen], "label": [gloss.topic for gloss in chosen]}, "glosses")


def _pairs(name: str, split: Sequence[Gloss], limit: int | None) -> Table:
    """Pair every definition with its own lemmas and with those of another gloss; each lemma is right once and wrong once."""
    split = [split[index] for index in sample(split, PAIRED[name])]
    others = _others(split, np.random.RandomState(0))
    rows: list[Row] = []
    for index in sample(split, limit):
        definition = split[index].definition
        rows += [(split[index].lemmas, definition, "right"), (split[others[index]].lemmas, definition, "wrong")]
    return _table(rows)


def _others(split: Sequence[Gloss], random: np.random.RandomState) -> list[int]:
    """Permute the glosses of every topic such that none is assigned one with a common lemma or the same definition."""
    others = list(range(len(split)))
    for topic in CLASSES:
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
    asked = [split[index] for index in sample(split, ASKED[name])]
    pools = {topic: [gloss for gloss in split if gloss.topic == topic] for topic in CLASSES}
    questions = [_candidates(gloss, pools[gloss.topic], CANDIDATES[name], random) for gloss in asked]
    rows: list[Row] = []
    for index in sample(asked, limit):
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
    columns = map(list, zip(*rows, strict=True))
    return Table(dict(zip(("first", "second", "label", "group"), columns, strict=False)), "glosses")


TASKS = {
    "topics": _Task("text_classification", CLASSES, _topics, "word", 30000),
    # Lemmas are rare words, which share only parts with a definition.
    "pairs": _Task("pair_classification", FIT, _pairs, "bpe", 2000),
    "ranking": _Task("answer_ranking", RELEVANCE, _ranking, "bpe", 2000),
}

GENERATION: dict[str, Callable[..., Any]] = {"language_model": gloss_corpus, "seq2seq": gloss_lemmas}
