"""A small grammar of English noun phrases in which nothing but the nouns shows number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

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
ARTICLES = ["the", "my", "your", "our", "their", "his", "her"]
ADJECTIVES = [
    "big",
    "small",
    "old",
    "young",
    "new",
    "strange",
    "famous",
    "quiet",
    "heavy",
    "bright",
    "dark",
    "clever",
    "tired",
    "lucky",
    "foreign",
    "local",
    "grey",
    "green",
    "golden",
    "lonely",
]
PREPOSITIONS = ["near", "behind", "beside", "with", "without", "above", "below", "around"]
VERBS = [
    "admired",
    "painted",
    "found",
    "described",
    "moved",
    "noticed",
    "forgot",
    "wanted",
    "followed",
    "sketched",
]  # the past shows no number


def _forms(words: str) -> list[tuple[str, str]]:
    """Read `singular` or `singular:plural` words; a plural that is not given ends in s."""
    pairs = (word.partition(":") for word in words.split())
    return [(one, many or f"{one}s") for one, _, many in pairs]


LIVING = _forms(PEOPLE)
NOUNS = LIVING + _forms(THINGS)
"""Singular and plural of every noun."""


def sentence(random: np.random.RandomState, head: int, nouns: int, *, other: bool = False) -> str:
    """Draw the words of a sentence before its verb, parted by spaces.

    Args:
        random: Source of the draws.
        head: Number of the head noun: 0 singular, 1 plural.
        nouns: Nouns between head and verb.
        other: Whether all of those are of the other number.
    """
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
