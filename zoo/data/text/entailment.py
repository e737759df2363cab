"""Generated logical entailment: what one propositional formula says about another, by truth table."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.data.text.formulas import MOST, every, formula
from zoo.data.text.module import TextData
from zoo.data.text.options import text_options
from zoo.data.text.splits import whole
from zoo.data.text.table import Table

CLASSES = ("contradiction", "entailment", "neutral")
RELATIONS = ("entailment", "contradiction", "neutral")  # of a premise to its own hypothesis, the next and the one after
SQUARE = len(RELATIONS) ** 2
POOL = 1000

Row = tuple[str, str, str]


@text_options(tokenizer="space")
def entailment(variables: int = 4, rows: int = 12000, **options: Any) -> TextData:
    """Pairs of propositional formulas: does the first entail, contradict or leave open the second? Exact labels.

    9603 / 1197 / 1197 pairs of three equally frequent classes, such as

        TODO

    The labels are exact, by truth table. No formula is always true or always false, so the labels exclude each other. Premises
    mention 2 to 5 variables, hypotheses 2 to 4, some of them more than once.

    Neither formula gives the label away by itself: the pairs come in squares of three premises and three hypotheses, in which
    every formula meets every label once. No formula stands in two squares, thus none in two splits.

    Accuracy on the test split, in per cent: any rule that reads one formula only 33.3; logistic regression on the words of both
    TODO.

    Args:
        variables: Variables in use, 3 to 6; two are too few for such squares.
        rows: Pairs of all splits together, at least 90; they make whole squares of nine, of which 80, 10 and 10 per cent are
            for training, validation and testing.
        **options: Of `TextData`; `seed` decides the order of training only, never the pairs.

    Raises:
        InputError: An option is out of its range.
    """
    squares = _Squares(whole("variables", variables, 3, MOST))
    count = whole("rows", rows, 10 * SQUARE, 200_000) // SQUARE
    held = count // 10
    counts = {"train": count - 2 * held, "val": held, "test": held}
    splits = {name: _table([row for _ in range(count) for row in squares.draw()]) for name, count in counts.items()}
    return TextData(splits, "pair_classification", classes=CLASSES, **options)


def _table(rows: list[Row]) -> Table:
    first, second, labels = (list(column) for column in zip(*rows, strict=True))
    return Table((first, second), labels, source="entailment")


class _Squares:
    """Draw squares of formulas that were in no square before."""

    def __init__(self, variables: int) -> None:
        self.variables = variables
        self.random = np.random.RandomState(0)
        self.seen: set[str] = set()
        self.premises: dict[str, int] = {}

    def draw(self) -> list[Row]:
        """Return premise, hypothesis and label of nine pairs."""
        if len(self.premises) < POOL:
            self._refill()
        while True:
            hypotheses = [self._new(4) for _ in RELATIONS]
            wanted = [[hypotheses[(i + step) % 3] for step in range(3)] for i in range(3)]
            premises = [self._premise(*(truth for _, truth in row)) for row in wanted]
            if all(premises) and len(dict(hypotheses)) == len(RELATIONS):
                break
        for premise in premises:
            del self.premises[premise]
        self.seen.update(dict(hypotheses))
        return [
            (premise, text, relation)
            for premise, row in zip(premises, wanted, strict=True)
            for (text, _), relation in zip(row, RELATIONS, strict=True)
        ]

    def _refill(self) -> None:
        """Draw premises that are kept for later squares."""
        while len(self.premises) < 2 * POOL:
            text, truth = self._new(5)
            self.premises[text] = truth
            self.seen.add(text)

    def _premise(self, entailed: int, excluded: int, undecided: int) -> str:
        """Draw a premise that stands in these relations to the truth tables of three hypotheses; "" if there is none.

        The premises of the three rows differ: each entails what the one before it contradicts.
        """
        texts = list(self.premises)
        truths = np.array(list(self.premises.values()), np.uint64)
        outside = np.uint64(every(self.variables) & ~entailed | excluded)
        inside = np.uint64(undecided)
        fits = np.flatnonzero((truths & outside == 0) & (truths & inside != 0) & (truths & ~inside != 0))
        return texts[self.random.choice(fits)] if len(fits) else ""

    def _new(self, most: int) -> tuple[str, int]:
        """Draw text and truth table of a formula not seen before that is sometimes true and sometimes false."""
        while True:
            found = formula(self.random, self.variables, self.random.randint(2, most + 1))
            if 0 < found.truth < every(self.variables) and found.text not in self.seen:
                return found.text, found.truth
