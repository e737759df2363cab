"""Test whether rows differ significantly, and whether results have the order of a published table.

A difference is significant at the 5 % level if Welch's t-test over seeds rejects equality and if the difference exceeds the
standard error of the test set at the same level. Values between 0 and 1 with mean p have a standard deviation of at most
sqrt(p (1 - p)). So the standard error of accuracy over N rows is sqrt(p (1 - p) / N), and that of mean average precision over N
questions is not larger. Both rows of a pair use the same test set, which usually makes the true error smaller: the test is
conservative. BLEU and bits per character have no such bound, so only their seeds are tested.

Rows over the same folds of the data are compared fold by fold, with one or more seeds. Folds share most of their training rows,
so a plain paired test is too optimistic. Student's t-test uses the variance of Nadeau and Bengio (2003, "Inference for the
generalization error", section 3), s^2 (1/k + 1/(k - 1)) over k folds instead of s^2 / k. They derive it for random splits, with
the ratio of test to training rows as the second term; validation rows count as training rows here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from statistics import mean, variance
from typing import NamedTuple

from scipy.stats import binom, norm, t

from benchmarks.studies.papers_rows import METRICS, Row

BOUNDED = ("accuracy", "map", "mrr", "exact_match")
LOWER_IS_BETTER = ("bits_per_character",)
LEVEL = 0.05
"""Significance level, for one difference and for one table."""
EQUAL = 1e-6
"""Tolerance for equal means, which are stored as 32-bit floats."""


@dataclass(frozen=True)
class Score:
    """One metric of one row.

    Attributes:
        values: One value per seed.
        tested: Number of answers that each value averages over; None if the standard error has no bound.
        folds: Mean over seeds of each fold, by the digest of its data; empty without cross-validation.
    """

    values: tuple[float, ...]
    tested: int | None = None
    folds: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return mean(self.values)

    @property
    def test_error(self) -> float:
        """Standard error from the size of the test set; 0 if unknown."""
        return math.sqrt(self.mean * (1 - self.mean) / self.tested) if self.tested else 0.0


def score(row: Row, metric: str, beam: bool = False) -> Score:
    """Read a metric of a row, with ``beam`` the result of beam search."""
    values = tuple((run["beam"] if beam else run["metrics"])[metric] for run in row.runs)
    folds: dict[str, float] = {}
    if all("folds" in run and run["data_sha256"] == row.runs[0]["data_sha256"] for run in row.runs) and not beam:
        columns = zip(*([fold[metric] for fold in run["folds"]] for run in row.runs), strict=True)
        folds = dict(zip(row.runs[0]["data_sha256"], map(mean, columns), strict=True))
    return Score(values, row.runs[0].get("tested") if metric in BOUNDED else None, folds)


def differs(one: Score, other: Score, printed: float | None = None) -> bool | None:
    """Test whether two rows differ significantly; return None if one has a single seed and they share no folds.

    Args:
        one: The score of a row.
        other: The score of another row.
        printed: Compare the difference with this published one instead of zero. The published one counts as a difference of
            single runs, or of as many folds, with our spread and our size of the test set.
    """
    share_folds = bool(one.folds) and one.folds.keys() == other.folds.keys()
    if not share_folds and 1 in (len(one.values), len(other.values)):
        return None
    difference, published = abs(one.mean - other.mean - (printed or 0.0)), int(printed is not None)
    test_error = math.sqrt(1 + published) * math.hypot(one.test_error, other.test_error)
    if difference <= norm.ppf(1 - LEVEL / 2) * test_error:
        return False
    error, freedom = (over_folds if share_folds else over_seeds)(one, other, published)
    return bool(difference > (t.ppf(1 - LEVEL / 2, freedom) * error if error else 0))


def over_seeds(one: Score, other: Score, published: int) -> tuple[float, float]:
    """Return the standard error of a difference over seeds, and its degrees of freedom (Welch 1947)."""
    sizes = [len(score.values) for score in (one, other)]
    variances = [variance(score.values) * (1 / len(score.values) + published) for score in (one, other)]
    if not any(variances):
        return 0.0, math.inf
    freedom = sum(variances) ** 2 / sum(value**2 / (size - 1) for value, size in zip(variances, sizes, strict=True))
    return math.sqrt(sum(variances)), freedom


def over_folds(one: Score, other: Score, published: int) -> tuple[float, float]:
    """Return the standard error of a difference over folds, and its degrees of freedom (Nadeau and Bengio 2003)."""
    k = len(one.folds)
    spread = variance(value - other.folds[digest] for digest, value in one.folds.items())
    return math.sqrt((1 + published) * spread * (1 / k + 1 / (k - 1))), k - 1


def more_than_chance(count: int, total: int) -> bool:
    """Check that ``count`` of ``total`` independent tests are significant by chance with a probability of at most 5 %.

    >>> [next(count for count in range(99) if more_than_chance(count, total)) for total in (1, 3, 4, 10, 20, 50)]
    [1, 2, 2, 3, 4, 6]
    """
    return bool(binom.sf(count - 1, total, LEVEL) <= LEVEL + 1e-9)


class Pair(NamedTuple):
    """Result of comparing two rows.

    Attributes:
        as_printed: Whether the row with the better published result is better here; None if they are equal.
        sure: Whether the difference is significant; None if it cannot be tested, see `differs`.
        smaller: Whether our lead is significantly smaller than the published one.
    """

    as_printed: bool | None
    sure: bool | None
    smaller: bool = False


@dataclass(frozen=True)
class Comparison:
    """Rows of one published table with the same network and data, sorted by published result, best first."""

    table: str
    rows: tuple[Row, ...]

    @property
    def metric(self) -> str:
        """The published metric."""
        return METRICS[self.rows[0].printed[0]]  # type: ignore[index]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Paper, table, network and setting, which comparisons on different data share."""
        row = self.rows[0]
        return row.paper, self.table, row.net, row.setting

    @property
    def measured(self) -> list[Row]:
        """The rows that have runs."""
        return [row for row in self.rows if row.runs]

    @property
    def scores(self) -> dict[str, Score]:
        """Scores by row name, best first; those of beam search if all rows have one beam size."""
        beams = {run.get("beam", {}).get("beam") for row in self.measured for run in row.runs}
        scores = {row.name: score(row, self.metric, len(beams) == 1 and None not in beams) for row in self.measured}
        return dict(sorted(scores.items(), key=lambda item: item[1].mean, reverse=self.metric not in LOWER_IS_BETTER))

    def pairs(self) -> list[Pair]:
        """Compare all pairs of rows with different published results, or only those whose leads the paper calls significant."""
        scores, printed = self.scores, {row.name: row.printed[1] for row in self.rows if row.printed}
        significant = {row.name for row in self.rows if row.extra.get("significant", "").partition(": ")[0] == self.table}
        claimed, pairs = significant or printed.keys(), []
        for one, other in combinations([row.name for row in self.measured], 2):
            ours, published = scores[one].mean - scores[other].mean, printed[one] - printed[other]
            if published and (one in claimed or other in claimed):
                smaller = ours * published <= 0 or abs(ours) < abs(published)
                smaller = smaller and differs(scores[one], scores[other], published) is True
                as_printed = ours * published > 0 if abs(ours) > EQUAL else None
                pairs.append(Pair(as_printed, differs(scores[one], scores[other]), smaller))
        return pairs


def comparisons(rows: Iterable[Row]) -> list[Comparison]:
    """Collect the comparisons of the papers from the comments ``# published:``."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        for table in row.tables if row.printed else ():
            groups.setdefault((row.paper, table, row.data, row.net, row.printed[0], row.setting), []).append(row)  # type: ignore[index]
    compared = []
    for (_, table, _, _, title, _), group in groups.items():
        higher = METRICS[title] not in LOWER_IS_BETTER
        if len(group) > 1:
            compared.append(Comparison(table, tuple(sorted(group, key=lambda row: row.printed[1], reverse=higher))))  # type: ignore[index]
    return compared


def verdict(pairs: list[Pair]) -> str:
    """Summarize in a few words whether the published order holds."""
    tested = [pair for pair in pairs if pair.sure is not None]
    if not tested:
        return "too few seeds" if pairs else "not measured"
    count = sum(bool(pair.as_printed) for pair in tested if pair.sure)
    supported = more_than_chance(count, len(tested))
    opposed = more_than_chance(sum(pair.as_printed is False for pair in tested if pair.sure), len(tested))
    if not (supported or opposed):
        text = "not decided" if 2 * len(tested) >= len(pairs) else "too few seeds"
    elif opposed:
        text = "mixed" if supported else "reversed here"
    else:
        text = "holds" if count == len(pairs) else "holds in part"
    return text + (", smaller differences" if more_than_chance(sum(pair.smaller for pair in tested), len(tested)) else "")


def tally(pairs: list[Pair]) -> str:
    """Count the pairs in the published and in the reverse order; the number of significant pairs is in parentheses."""
    tested = [pair for pair in pairs if pair.sure is not None]
    parts = []
    for as_printed, name in ((True, "as published"), (False, "reversed")) if tested else ():
        significant = [pair.sure for pair in tested if pair.as_printed is as_printed]
        parts.append(f"{len(significant)} {name} ({significant.count(True)})")
    if untested := len(pairs) - len(tested):
        parts.append(f"{untested} with one seed")
    return ", ".join(parts)


def by_table(compared: Iterable[Comparison]) -> dict[tuple[str, ...], list[Comparison]]:
    """Group the comparisons of a table, network and setting; up to three data sets stay separate."""
    compared = list(compared)
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for one in compared:
        if one.pairs():
            alike = [other for other in compared if other.key == one.key]
            groups.setdefault((*one.key, "" if len(alike) > 3 else one.rows[0].data), []).append(one)
    return groups
