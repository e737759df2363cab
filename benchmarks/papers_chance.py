"""Whether differences between measured rows are more than chance.

A difference counts if it is more than twice its standard error over seeds, and more than twice its standard error over the
rows of the test set. Numbers between 0 and 1 with mean p have a standard deviation of at most sqrt(p (1 - p)), so accuracy over
N rows has a standard error of sqrt(p (1 - p) / N), and mean average precision over N questions no greater one. Both rows of a
pair answer the same test, which mostly makes the true error smaller: the rule errs on the side of chance. BLEU and bits per
character have no such bound; only their seeds are asked.
"""

import math
from dataclasses import dataclass
from statistics import mean, stdev

from benchmarks.papers_rows import Row

BOUNDED = ("accuracy", "map", "mrr", "exact_match")
FACTOR = 2.0


@dataclass(frozen=True)
class Figure:
    """One figure of one row: a number for each seed, and how many answers each is a mean over, if it has that bound."""

    values: tuple[float, ...]
    tested: int | None = None

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def over_seeds(self) -> float | None:
        """Standard error of the mean over seeds; None for one seed, which does not tell."""
        return stdev(self.values) / math.sqrt(len(self.values)) if len(self.values) > 1 else None

    @property
    def over_test(self) -> float:
        """Standard error from the size of the test set; 0 where it is not known."""
        return math.sqrt(self.mean * (1 - self.mean) / self.tested) if self.tested else 0.0


def figure(row: Row, name: str, beam: bool = False) -> Figure:
    """Read a figure of a row, by the name that it is stored under; with a beam if asked."""
    values = tuple((run["beam"] if beam else run["metrics"])[name] for run in row.runs)
    return Figure(values, row.runs[0].get("tested") if name in BOUNDED else None)


def counts(one: Figure, other: Figure, printed: float | None = None) -> bool | None:
    """Whether two rows differ by more than chance; None if that cannot be told from one seed.

    Args:
        one: A row.
        other: Another.
        printed: Whether they differ from this printed difference instead, which was measured on a test as large.
    """
    difference = abs(one.mean - other.mean - (printed or 0.0))
    tests = 1.0 if printed is None else math.sqrt(2)
    if difference <= FACTOR * tests * math.hypot(one.over_test, other.over_test):
        return False
    if one.over_seeds is None or other.over_seeds is None:
        return None
    return difference > FACTOR * math.hypot(one.over_seeds, other.over_seeds)


def best(figures: dict[str, Figure], less: bool = False) -> tuple[str, bool]:
    """Return the best row, and whether it is better than the next one by more than chance."""
    ranked = sorted(figures, key=lambda name: figures[name].mean, reverse=not less)
    return ranked[0], len(ranked) > 1 and counts(figures[ranked[0]], figures[ranked[1]]) is True
