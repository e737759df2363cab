"""Generated subject-verb agreement, from a small grammar in which only nouns show number."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from zoo.data.options import check_integer, options_of
from zoo.data.text.module import TextData
from zoo.data.text.table import Table

CLASSES = ("singular", "plural")
MAX_NOUNS = 4  # nouns between head and verb

Item = TypeVar("Item")

PEOPLE = """
    actor artist author boy brother child:children clerk coach cousin daughter doctor driver farmer friend gentleman:gentlemen
    girl goose:geese guard guest judge king lady:ladies lawyer man:men mouse:mice nurse ox:oxen pilot poet queen sister singer
    spy:spies teacher thief:thieves wife:wives wolf:wolves woman:women
"""
THINGS = """
    bicycle book box:boxes bridge cabinet car cherry:cherries city:cities clock criterion:criteria crisis:crises door
    factory:factories foot:feet garden half:halves house key knife:knives lamp leaf:leaves letter loaf:loaves medium:media
    oasis:oases phenomenon:phenomena picture river road scarf:scarves shelf:shelves stone table tooth:teeth tower tree
"""
_split = str.split
ARTICLES = _split("the my your our their his her")
ADJECTIVES = _split(
    "big small old young new strange famous quiet heavy bright dark clever tired lucky foreign local grey green golden lonely"
)
PREPOSITIONS = _split("near behind beside with without above below around")
VERBS = _split("admired painted found described moved noticed forgot wanted followed sketched")  # past tense: shows no number


def _forms(words: str) -> list[tuple[str, str]]:
    """Parse words written as `singular` or `singular:plural`; the default plural ends in s."""
    pairs = (word.partition(":") for word in words.split())
    return [(singular, plural or f"{singular}s") for singular, _, plural in pairs]


LIVING = _forms(PEOPLE)
NOUNS = LIVING + _forms(THINGS)  # singular and plural of every noun


@options_of(TextData, tokenizer="space", classes=CLASSES)
def agreement(attractors: int | None = None, rows: int = 12000, **options: Any) -> TextData:
    """Sentences up to their verb, labelled by the number of the verb: singular or plural; 9600 / 1200 / 1200 rows.

    After Linzen et al. 2016, but from a grammar, so that the labels are exact:

        with the wives , the old key near the cabinets that the teacher painted    ->    singular

    The head noun is the first one after the comma, or the first of a sentence without a comma. Between it and the verb are 0 to
    4 further nouns (30, 25, 20, 15, 10 % of the sentences) of either number, in prepositional phrases and relative clauses,
    nested at random. No other word shows number. All 74 nouns are in the training split in both numbers. Both labels are
    equally frequent, and no sentence occurs twice.

    With `attractors` the test split has new sentences with exactly this many attractors (nouns of the other number) and no
    other noun between head and verb, the homogeneous intervention of Linzen et al. Training and validation do not change.

    Accuracy on the test split, in per cent (the last two: logistic regression on counts):

        attractors              any      0      1      2      3      4
        majority               50.0   50.0   50.0   50.0   50.0   50.0
        number of last noun    61.6  100.0    0.0    0.0    0.0    0.0
        number of first noun   78.0   70.3   78.3   79.6   80.2   79.8
        bag of words           74.3   84.5   51.8   10.9    4.2    1.2
        words and their pairs  80.8   85.9   68.9   27.0    9.2    2.9

    Args:
        attractors: Attractors of every test sentence, 0 to 4; None for a mixed test split, like the training split.
        rows: Number of sentences, at least 100; 80, 10 and 10 % are for training, validation and testing.
        **options: Of `TextData`; the sentences do not depend on `seed`.
    """
    check_integer("rows", rows, 100, 200_000)
    if attractors is not None:
        check_integer("attractors", attractors, 0, MAX_NOUNS)
    return TextData(partial(_generate, attractors, rows), "text_classification", **options)


def _generate(attractors: int | None, rows: int) -> dict[str, Table]:
    held = rows // 10
    random, seen = np.random.RandomState(0), set[str]()
    splits = {name: _draw(random, count, seen) for name, count in (("train", rows - 2 * held), ("val", held))}
    if attractors is not None:
        random = np.random.RandomState(1 + attractors)
    splits["test"] = _draw(random, held, seen, attractors)
    return splits


def _draw(random: np.random.RandomState, count: int, seen: set[str], attractors: int | None = None) -> Table:
    """Draw new sentences with alternating labels, and add them to `seen`."""
    texts: list[str] = []
    while len(texts) < count:
        head = len(texts) % 2
        nouns = int(random.choice(MAX_NOUNS + 1, p=(0.30, 0.25, 0.20, 0.15, 0.10))) if attractors is None else attractors
        text = sentence(random, head, nouns, other=attractors is not None)
        if text not in seen:
            seen.add(text)
            texts.append(text)
    labels = [CLASSES[i % 2] for i in range(count)]
    return Table((texts,), labels, source="agreement")


def sentence(random: np.random.RandomState, head: int, nouns: int, *, other: bool = False) -> str:
    """Draw a sentence up to its verb: a head of this number (1: plural), then `nouns` nouns, of the other number if `other`."""
    words: list[str] = []
    if random.uniform() < 0.4:
        words += [_pick(random, PREPOSITIONS), *_phrase(random, None), *_modifiers(random, random.randint(2), None), ","]
    words += _phrase(random, head)
    return " ".join(words + _modifiers(random, nouns, 1 - head if other else None))


def _phrase(random: np.random.RandomState, number: int | None, nouns: Sequence[tuple[str, str]] = NOUNS) -> list[str]:
    """Draw an article, an optional adjective and a noun, of random number by default."""
    adjective = [_pick(random, ADJECTIVES)] if random.uniform() < 0.4 else []
    either = random.randint(2)
    return [_pick(random, ARTICLES), *adjective, _pick(random, nouns)[either if number is None else number]]


def _modifiers(random: np.random.RandomState, nouns: int, number: int | None) -> list[str]:
    """Draw modifiers of a noun that contain `nouns` nouns, of this number or of random ones."""
    if nouns == 0:
        return []
    kind, inner = random.randint(3), random.randint(min(nouns, 2))
    if kind == 0:  # near the cabinets
        words = [_pick(random, PREPOSITIONS), *_phrase(random, number)]
    elif kind == 1:  # that admired the cabinets
        words = ["that", _pick(random, VERBS), *_phrase(random, number)]
    else:  # that the teacher near the cabinets painted
        clause = _modifiers(random, inner, number)
        words = ["that", *_phrase(random, number, LIVING), *clause, _pick(random, VERBS)]
    return words + _modifiers(random, nouns - 1 - (inner if kind == 2 else 0), number)


def _pick(random: np.random.RandomState, items: Sequence[Item]) -> Item:
    return items[random.randint(len(items))]
