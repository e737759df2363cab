"""Differences between results, with 95 % intervals: is one ahead, behind, or is that not decided?

A difference is a weighted sum of means. Its variance is a sum of independent parts, each with a variance v and f degrees of
freedom. The interval is t * sqrt(sum v), with (sum v)^2 / sum(v^2 / f) degrees of freedom (Welch 1947, Satterthwaite 1946). A
difference is ahead or behind if its interval excludes zero. Designs differ only in their parts:

- Independent runs: the mean of k seeds with the coefficient c has v = c^2 s^2 / k and f = k - 1. With coefficients 1 and -1
  this is Welch's t-test.
- Pairs of runs with the same seeds: k differences have v = s^2 / k and f = k - 1, Student's paired t-test.
- The same folds of the data: folds share most of their training rows, so the paired test is too optimistic. Nadeau and Bengio
  (2003, "Inference for the generalization error", section 3) replace s^2 / k by s^2 (1 / k + 1 / (k - 1)). They derive it for
  random splits, with the ratio of test to training rows as the second term; validation rows count as training rows here.
- The test set, if the size is known: values between 0 and 1 with the mean p have a variance of at most p (1 - p), so a mean
  over N of them, such as accuracy or average precision, has at most v = c^2 p (1 - p) / N. Results on the same test set are
  correlated, so this is too much rather than too little. Folds have different test rows, so their spread contains it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean, variance
from typing import TypeVar

from scipy.stats import binom, t

LEVEL = 0.05
"""Significance level of a difference; 1 - LEVEL is the coverage of its interval."""
Part = tuple[float, float]
"""A variance and its degrees of freedom."""


@dataclass(frozen=True)
class Difference:
    """An estimate and half of its 95 % interval; a positive estimate is better."""

    estimate: float
    interval: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.estimate - self.interval

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.estimate + self.interval

    @property
    def verdict(self) -> str:
        """``ahead`` or ``behind`` if the interval excludes zero, else ``not decided``."""
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "not decided"


def with_interval(estimate: float, parts: Iterable[Part]) -> Difference:
    """Return an estimate with the interval of the independent parts of its variance."""
    parts = [part for part in parts if part[0]]
    total, rest = sum(part for part, _ in parts), sum(part**2 / freedom for part, freedom in parts)
    quantile = float(t.ppf(1 - LEVEL / 2, total**2 / rest if rest else math.inf)) if parts else 0.0
    return Difference(estimate, quantile * math.sqrt(total))


@dataclass(frozen=True)
class Score:
    """A metric of a network.

    Attributes:
        values: One value per seed.
        tested: Number of test results between 0 and 1 that each value is the mean of; None if unknown or not bounded.
        folds: Mean over seeds of each fold, by the digest of its data; empty without cross-validation.
    """

    values: tuple[float, ...]
    tested: int | None = None
    folds: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def variance(self) -> float:
        """The variance of the mean over seeds; needs two seeds."""
        return variance(self.values) / len(self.values)

    @property
    def interval(self) -> float | None:
        """Half of the 95 % t-interval of the mean over seeds; None for one seed."""
        return with_interval(0.0, [(self.variance, len(self.values) - 1)]).interval if len(self.values) > 1 else None

    def parts(self, factor: float = 1.0, runs: int = 0) -> list[Part]:
        """Return the parts of the variance of ``factor`` times the mean, plus those of ``runs`` single runs like these."""
        test = self.mean * (1 - self.mean) / self.tested if self.tested else 0.0
        seeds = (1 + runs * len(self.values)) * self.variance
        return [(factor**2 * seeds, len(self.values) - 1), (factor**2 * (1 + runs) * test, math.inf)]


Measured = TypeVar("Measured", bound=Score)


def contrast(coefficients: Mapping[Measured, float]) -> Difference | None:
    """Return a weighted sum of the means of independent results; None if one of them has one seed."""
    terms = [(score, factor) for score, factor in coefficients.items() if factor]
    if any(len(score.values) < 2 for score, _ in terms):
        return None
    parts = [part for score, factor in terms for part in score.parts(factor)]
    return with_interval(sum(factor * score.mean for score, factor in terms), parts)


def compare(one: Score, other: Score, *, lower: bool = False, published: float | None = None) -> Difference | None:
    """Return by how much a result is better, over folds if both have the same; None if one has a single seed without them.

    Args:
        one: The result of a network.
        other: The result of the network to compare it with.
        lower: Whether a lower metric is better.
        published: Compare the difference with this published one instead of zero. The published one counts as a difference of
            single runs, or of as many folds, with our spread and our size of the test set.
    """
    estimate, runs = (-1 if lower else 1) * (one.mean - other.mean) - (published or 0.0), int(published is not None)
    if one.folds and one.folds.keys() == other.folds.keys():
        k = len(one.folds)
        spread = variance(value - other.folds[fold] for fold, value in one.folds.items())
        return with_interval(estimate, [((1 + runs) * spread * (1 / k + 1 / (k - 1)), k - 1)])
    if 1 in (len(one.values), len(other.values)):
        return None
    return with_interval(estimate, [part for score in (one, other) for part in score.parts(runs=runs)])


def more_than_chance(count: int, total: int) -> bool:
    """Check that ``count`` of ``total`` independent tests are significant by chance with a probability of at most 5 %.

    >>> [next(count for count in range(99) if more_than_chance(count, total)) for total in (1, 3, 4, 10, 20, 50)]
    [1, 2, 2, 3, 4, 6]
    """
    return bool(binom.sf(count - 1, total, LEVEL) <= LEVEL + 1e-9)
