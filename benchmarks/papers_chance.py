"""Whether differences between measured rows are more than chance.

A difference counts if Welch's t-test over seeds finds it at a level of one in twenty, and if it is more than the standard error
over the rows of the test set explains at the same level. Numbers between 0 and 1 with mean p have a standard deviation of at
most sqrt(p (1 - p)), so accuracy over N rows has a standard error of sqrt(p (1 - p) / N), and mean average precision over N
questions no greater one. Both rows of a pair answer the same test, which mostly makes the true error smaller: the rule errs on
the side of chance. BLEU and bits per character have no such bound; only their seeds are asked.
"""

import math
from dataclasses import dataclass
from statistics import mean, stdev, variance

from scipy.stats import binom, norm, t

from benchmarks.papers_rows import Row

BOUNDED = ("accuracy", "map", "mrr", "exact_match")
LEVEL = 0.05
"""How often chance alone may pass, of one difference and of one table."""


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
    """Whether two rows differ by more than chance; None if one of them has one seed, which does not tell.

    Args:
        one: A row.
        other: Another.
        printed: Whether they differ from this printed difference instead. It is taken for one of single runs, with the spread
            over seeds and the size of the test that were found here.
    """
    sizes = [len(figure.values) for figure in (one, other)]
    if 1 in sizes:
        return None
    difference, again = abs(one.mean - other.mean - (printed or 0.0)), 0 if printed is None else 1
    over_test = math.sqrt(1 + again) * math.hypot(one.over_test, other.over_test)
    if difference <= norm.ppf(1 - LEVEL / 2) * over_test:
        return False
    shares = [variance(figure.values) * (1 / len(figure.values) + again) for figure in (one, other)]
    if not any(shares):
        return difference > 0
    freedom = sum(shares) ** 2 / sum(share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return bool(difference > t.ppf(1 - LEVEL / 2, freedom) * math.sqrt(sum(shares)))


def more_than_chance(found: int, of: int) -> bool:
    """Whether that many differences of so many independent ones come by chance in at most one table of twenty.

    >>> [next(found for found in range(99) if more_than_chance(found, of)) for of in (1, 3, 4, 10, 20, 50)]
    [1, 2, 2, 3, 4, 6]
    """
    return bool(binom.sf(found - 1, of, LEVEL) <= LEVEL + 1e-9)


def best(figures: dict[str, Figure], less: bool = False) -> tuple[str, bool]:
    """Return the best row, and whether it is better than the next one by more than chance."""
    ranked = sorted(figures, key=lambda name: figures[name].mean, reverse=not less)
    return ranked[0], len(ranked) > 1 and counts(figures[ranked[0]], figures[ranked[1]]) is True
