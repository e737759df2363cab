"""Generated subject-verb agreement, from a small grammar of noun phrases in which nothing but the nouns shows number."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from zoo.data.options import check_integer
from zoo.data.text.module import TextData, text_options
from zoo.data.text.table import Table

CLASSES = ("singular", "plural")
MOST = 4  # nouns between head and verb

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
_words = str.split
ARTICLES = _words("the my your our their his her")
ADJECTIVES = _words(
    "big small old young new strange famous quiet heavy bright dark clever tired lucky foreign local grey green golden lonely"
)
PREPOSITIONS = _words("near behind beside with without above below around")
VERBS = _words("admired painted found described moved noticed forgot wanted followed sketched")  # the past shows no number


def _forms(words: str) -> list[tuple[str, str]]:
    """Read `singular` or `singular:plural` words; a plural that is not given ends in s."""
    pairs = (word.partition(":") for word in words.split())
    return [(singular, many or f"{singular}s") for singular, _, many in pairs]


LIVING = _forms(PEOPLE)
NOUNS = LIVING + _forms(THINGS)  # singular and plural of every noun


@text_options(tokenizer="space", classes=CLASSES)
def agreement(attractors: int | None = None, rows: int = 12000, **options: Any) -> TextData:
    """Sentences up to their verb; the label is the number that the verb must have. 9600 / 1200 / 1200, two classes.

    After Linzen et al. 2016, but from a grammar, so that the labels are exact:

        with the wives , the old key near the cabinets that the teacher painted    ->    singular

    The head noun is the first one after the comma, or the first one at all if there is no opening with a comma. Between it and
    the verb stand 0 to 4 further nouns (30, 25, 20, 15, 10 % of the sentences) of either number, in prepositional phrases and
    relative clauses, nested at random. No other word shows number. All 74 nouns are in the training split in both numbers. Both
    labels are equally frequent, and no sentence occurs twice.

    With `attractors` the test split holds new sentences with exactly so many attractors, nouns of the other number, and no
    further noun between head and verb: the homogeneous intervention of Linzen et al. Training and validation stay as they are.

    Accuracy on the test split, in per cent (the last two: logistic regression on counts):

        attractors              any      0      1      2      3      4
        majority               50.0   50.0   50.0   50.0   50.0   50.0
        number of last noun    61.6  100.0    0.0    0.0    0.0    0.0
        number of first noun   78.0   70.3   78.3   79.6   80.2   79.8
        bag of words           74.3   84.5   51.8   10.9    4.2    1.2
        words and their pairs  80.8   85.9   68.9   27.0    9.2    2.9

    Args:
        attractors: Attractors of every test sentence, 0 to 4; None leaves the test split mixed, like the training split.
        rows: Sentences of all splits together, at least 100; 80, 10 and 10 per cent are for training, validation and testing.
        **options: Of `TextData`; `seed` decides the order of training only, never the sentences.
    """
    check_integer("rows", rows, 100, 200_000)
    if attractors is not None:
        check_integer("attractors", attractors, 0, MOST)
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
    """Draw sentences that were not seen before, of either label in turn, and enter them among the seen ones."""
    texts: list[str] = []
    while len(texts) < count:
        head = len(texts) % 2
        nouns = int(random.choice(MOST + 1, p=(0.30, 0.25, 0.20, 0.15, 0.10))) if attractors is None else attractors
        text = sentence(random, head, nouns, other=attractors is not None)
        if text not in seen:
            seen.add(text)
            texts.append(text)
    labels = [CLASSES[i % 2] for i in range(count)]
    return Table((texts,), labels, source="agreement")


def sentence(random: np.random.RandomState, head: int, nouns: int, *, other: bool = False) -> str:
    """Draw a sentence up to its verb: the number of its head (1: plural), how many further nouns, all of the other number?"""
    words: list[str] = []
    if random.uniform() < 0.4:
        words += [_pick(random, PREPOSITIONS), *_phrase(random, None), *_modifiers(random, random.randint(2), None), ","]
    words += _phrase(random, head)
    return " ".join(words + _modifiers(random, nouns, 1 - head if other else None))


def _phrase(random: np.random.RandomState, number: int | None, nouns: Sequence[tuple[str, str]] = NOUNS) -> list[str]:
    """Draw article, perhaps adjective, noun; of either number if none is given."""
    adjective = [_pick(random, ADJECTIVES)] if random.uniform() < 0.4 else []
    either = random.randint(2)
    return [_pick(random, ARTICLES), *adjective, _pick(random, nouns)[either if number is None else number]]


def _modifiers(random: np.random.RandomState, nouns: int, number: int | None) -> list[str]:
    """Draw what follows a noun and holds so many nouns, of the given number or of either."""
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
