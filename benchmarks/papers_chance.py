"""Whether differences between measured rows are more than chance.

A difference counts if Welch's t-test over seeds finds it at a level of one in twenty, and if it is more than the standard error
over the rows of the test set explains at the same level. Numbers between 0 and 1 with mean p have a standard deviation of at
most sqrt(p (1 - p)), so accuracy over N rows has a standard error of sqrt(p (1 - p) / N), and mean average precision over N
questions no greater one. Both rows of a pair answer the same test, which mostly makes the true error smaller: the rule errs on
the side of chance. BLEU and bits per character have no such bound; only their seeds are asked.

Rows over the same folds of the data are compared fold by fold, one seed or several, in place of seed by seed. Folds share most
of their training rows, so a plain paired test finds too much; Student's t-test is taken with the variance of Nadeau and Bengio
(2003, "Inference for the generalization error", section 3), s^2 (1/k + 1/(k - 1)) over k folds in place of s^2 / k. They derive
it for splits at random, with the ratio of test to training rows as its second term; rows held out for validation count as
training rows here.
"""

import math
from dataclasses import dataclass, field
from statistics import mean, stdev, variance

from scipy.stats import binom, norm, t

from benchmarks.papers_rows import Row

BOUNDED = ("accuracy", "map", "mrr", "exact_match")
LEVEL = 0.05
"""How often chance alone may pass, of one difference and of one table."""


@dataclass(frozen=True)
class Figure:
    """One figure of one row.

    Attributes:
        values: A number for each seed.
        tested: How many answers each is a mean over, if it has that bound.
        folds: The mean over seeds in each fold, by the digest of the fold's data; none where the data have one split.
    """

    values: tuple[float, ...]
    tested: int | None = None
    folds: dict[str, float] = field(default_factory=dict)

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
    folds: dict[str, float] = {}
    if all("folds" in run and run["data_sha256"] == row.runs[0]["data_sha256"] for run in row.runs) and not beam:
        columns = zip(*([found[name] for found in run["folds"]] for run in row.runs), strict=True)
        folds = dict(zip(row.runs[0]["data_sha256"], map(mean, columns), strict=True))
    return Figure(values, row.runs[0].get("tested") if name in BOUNDED else None, folds)


def counts(one: Figure, other: Figure, printed: float | None = None) -> bool | None:
    """Whether two rows differ by more than chance; None if one has one seed and they do not share folds, which does not tell.

    Args:
        one: A row.
        other: Another.
        printed: Whether they differ from this printed difference instead. It is taken for one of single runs, or of as many
            folds, with the spread and the size of the test that were found here.
    """
    folded = bool(one.folds) and one.folds.keys() == other.folds.keys()
    if not folded and 1 in (len(one.values), len(other.values)):
        return None
    difference, again = abs(one.mean - other.mean - (printed or 0.0)), 0 if printed is None else 1
    over_test = math.sqrt(1 + again) * math.hypot(one.over_test, other.over_test)
    if difference <= norm.ppf(1 - LEVEL / 2) * over_test:
        return False
    error, freedom = over_folds(one, other, again) if folded else over_seeds(one, other, again)
    return bool(difference > (t.ppf(1 - LEVEL / 2, freedom) * error if error else 0))


def over_seeds(one: Figure, other: Figure, again: int = 0) -> tuple[float, float]:
    """Return the standard error of a difference over seeds, and its degrees of freedom (Welch 1947)."""
    sizes = [len(figure.values) for figure in (one, other)]
    shares = [variance(figure.values) * (1 / len(figure.values) + again) for figure in (one, other)]
    if not any(shares):
        return 0.0, math.inf
    freedom = sum(shares) ** 2 / sum(share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return math.sqrt(sum(shares)), freedom


def over_folds(one: Figure, other: Figure, again: int = 0) -> tuple[float, float]:
    """Return the standard error of a difference over folds, and its degrees of freedom (Nadeau and Bengio 2003)."""
    k = len(one.folds)
    spread = variance(value - other.folds[digest] for digest, value in one.folds.items())
    return math.sqrt((1 + again) * spread * (1 / k + 1 / (k - 1))), k - 1


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
