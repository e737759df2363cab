"""Generated subject-verb agreement: the number of the head noun decides, whatever nouns stand nearer to the verb."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.data.options import whole
from zoo.data.text.grammar import sentence
from zoo.data.text.module import TextData
from zoo.data.text.options import text_options
from zoo.data.text.table import Table

CLASSES = ("singular", "plural")
NOUNS = 4  # at most so many between head and verb


@text_options(tokenizer="space", classes=CLASSES)
def agreement(attractors: int | None = None, rows: int = 12000, **options: Any) -> TextData:
    """Sentences up to their verb; the label is the number that the verb must have. 9600 / 1200 / 1200, two classes.

    After Linzen et al. 2016, but from a grammar, so that the labels are exact:

        with the wives , the old key near the cabinets that the teacher painted    ->    singular

    The head noun is the first one after the comma, or the first one at all if there is no opening with a comma. Between it and
    the verb stand 0 to 4 further nouns (30, 25, 20, 15, 10 % of the sentences) of either number, in prepositional phrases and
    in relative clauses of the subject and of the object, nested at random. No other word shows number: articles,
    adjectives and verbs in the past fit both. 74 nouns, 29 of them with plurals other than a mere s, all in both numbers in the
    training split. Both labels are equally frequent. No sentence occurs twice.

    With `attractors` the test split holds new sentences with exactly so many attractors, nouns of the other number, and no
    further noun between head and verb: the homogeneous intervention of Linzen et al. Training and validation stay as they are.

    Accuracy on the test split, in per cent:

        attractors              any      0      1      2      3      4
        majority               50.0   50.0   50.0   50.0   50.0   50.0
        number of last noun    61.6  100.0    0.0    0.0    0.0    0.0
        number of first noun   78.0   70.3   78.3   79.6   80.2   79.8
        bag of words           74.3   84.5   51.8   10.9    4.2    1.2
        words and their pairs  80.8   85.9   68.9   27.0    9.2    2.9

    (the last two: logistic regression on counts).

    Args:
        attractors: Attractors of every test sentence, 0 to 4; None leaves the test split mixed, like the training split.
        rows: Sentences of all splits together, at least 100; 80, 10 and 10 per cent are for training, validation and testing.
        **options: Of `TextData`; `seed` decides the order of training only, never the sentences.

    Raises:
        InputError: An option is out of range.

    Example:
        >>> data = agreement(attractors=1, rows=100)
        >>> data.info.sizes, data.info.classes
        ({'train': 80, 'val': 10, 'test': 10}, ('singular', 'plural'))
        >>> data.splits["test"].texts[0][0], data.splits["test"].labels[0]
        ('our clever coach that your clever kings moved', 'singular')
    """
    held = whole("rows", rows, 100, 200_000) // 10
    if attractors is not None:
        whole("attractors", attractors, 0, NOUNS)
    random, seen = np.random.RandomState(0), set[str]()
    splits = {name: _draw(random, count, seen) for name, count in (("train", rows - 2 * held), ("val", held))}
    if attractors is not None:
        random = np.random.RandomState(1 + attractors)
    splits["test"] = _draw(random, held, seen, attractors)
    return TextData(splits, "text_classification", **options)


def _draw(random: np.random.RandomState, count: int, seen: set[str], attractors: int | None = None) -> Table:
    """Draw sentences that were not seen before, of either label in turn, and enter them among the seen ones."""
    texts: list[str] = []
    while len(texts) < count:
        head = len(texts) % 2
        nouns = int(random.choice(NOUNS + 1, p=(0.30, 0.25, 0.20, 0.15, 0.10))) if attractors is None else attractors
        text = sentence(random, head, nouns, other=attractors is not None)
        if text not in seen:
            seen.add(text)
            texts.append(text)
    labels = [CLASSES[i % 2] for i in range(count)]
    return Table((texts,), labels, source="agreement")
