"""Judge whether measured rows differ by more than chance, and whether the order of a printed table holds.

A difference counts if Welch's t-test over seeds finds it at a level of one in twenty, and if it is more than the standard error
over the rows of the test set explains at the same level. Numbers between 0 and 1 with mean p have a standard deviation of at
most sqrt(p (1 - p)), so accuracy over N rows has a standard error of sqrt(p (1 - p) / N), and mean average precision over N
questions no greater one. Both rows of a pair answer the same test, which mostly makes the true error smaller: the rule errs on
the side of chance. BLEU and bits per character have no such bound; only their seeds are used.

Rows over the same folds of the data are compared fold by fold, with one seed or several. Folds share most of their training
rows, so a plain paired test finds too much; Student's t-test is taken with the variance of Nadeau and Bengio (2003, "Inference
for the generalization error", section 3), s^2 (1/k + 1/(k - 1)) over k folds in place of s^2 / k. They derive it for random
splits, with the ratio of test to training rows as its second term; validation rows count as training rows here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from statistics import mean, stdev, variance
from typing import NamedTuple

from scipy.stats import binom, norm, t

from benchmarks.papers_rows import METRICS, Row

BOUNDED = ("accuracy", "map", "mrr", "exact_match")
LOWER_IS_BETTER = ("bits_per_character",)
LEVEL = 0.05
"""How often chance alone may pass, for one difference and for one table."""
EQUAL = 1e-6
"""Means of equally many right answers differ by less, because they are stored in 32 bits."""


@dataclass(frozen=True)
class Score:
    """One metric of one row.

    Attributes:
        values: A number for each seed.
        tested: How many answers each is a mean over, if the metric has that bound.
        folds: The mean over seeds in each fold, by the digest of the fold's data; empty where the data have one split.
    """

    values: tuple[float, ...]
    tested: int | None = None
    folds: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)

    @property
    def test_error(self) -> float:
        """Standard error from the size of the test set; 0 where it is not known."""
        return math.sqrt(self.mean * (1 - self.mean) / self.tested) if self.tested else 0.0

    def text(self, digits: int = 3) -> str:
        """Write the mean and the standard deviation over seeds."""
        spread = f" ± {stdev(self.values):.{digits}f}" if len(self.values) > 1 else ""
        return f"{self.mean:.{digits}f}{spread}"


def score(row: Row, metric: str, beam: bool = False) -> Score:
    """Read a metric of a row; with ``beam``, the one of beam search."""
    values = tuple((run["beam"] if beam else run["metrics"])[metric] for run in row.runs)
    folds: dict[str, float] = {}
    if all("folds" in run and run["data_sha256"] == row.runs[0]["data_sha256"] for run in row.runs) and not beam:
        columns = zip(*([fold[metric] for fold in run["folds"]] for run in row.runs), strict=True)
        folds = dict(zip(row.runs[0]["data_sha256"], map(mean, columns), strict=True))
    return Score(values, row.runs[0].get("tested") if metric in BOUNDED else None, folds)


def differs(one: Score, other: Score, printed: float | None = None) -> bool | None:
    """Whether two rows differ by more than chance; None if one has a single seed and they share no folds.

    Args:
        one: A row.
        other: Another row.
        printed: Compare the difference with this printed one instead of zero. The printed one is taken for a difference of
            single runs, or of as many folds, with the spread and the size of the test set that were found here.
    """
    folded = bool(one.folds) and one.folds.keys() == other.folds.keys()
    if not folded and 1 in (len(one.values), len(other.values)):
        return None
    difference, again = abs(one.mean - other.mean - (printed or 0.0)), 0 if printed is None else 1
    test_error = math.sqrt(1 + again) * math.hypot(one.test_error, other.test_error)
    if difference <= norm.ppf(1 - LEVEL / 2) * test_error:
        return False
    error, freedom = over_folds(one, other, again) if folded else over_seeds(one, other, again)
    return bool(difference > (t.ppf(1 - LEVEL / 2, freedom) * error if error else 0))


def over_seeds(one: Score, other: Score, again: int = 0) -> tuple[float, float]:
    """Return the standard error of a difference over seeds, and its degrees of freedom (Welch 1947)."""
    sizes = [len(found.values) for found in (one, other)]
    shares = [variance(found.values) * (1 / len(found.values) + again) for found in (one, other)]
    if not any(shares):
        return 0.0, math.inf
    freedom = sum(shares) ** 2 / sum(share**2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return math.sqrt(sum(shares)), freedom


def over_folds(one: Score, other: Score, again: int = 0) -> tuple[float, float]:
    """Return the standard error of a difference over folds, and its degrees of freedom (Nadeau and Bengio 2003)."""
    k = len(one.folds)
    spread = variance(value - other.folds[digest] for digest, value in one.folds.items())
    return math.sqrt((1 + again) * spread * (1 / k + 1 / (k - 1))), k - 1


def more_than_chance(count: int, total: int) -> bool:
    """Whether that many differences of ``total`` independent ones come by chance in at most one table of twenty.

    >>> [next(count for count in range(99) if more_than_chance(count, total)) for total in (1, 3, 4, 10, 20, 50)]
    [1, 2, 2, 3, 4, 6]
    """
    return bool(binom.sf(count - 1, total, LEVEL) <= LEVEL + 1e-9)


class Pair(NamedTuple):
    """Two rows of a comparison.

    Attributes:
        as_printed: Whether the one that is better in print is better here; None if they are equal.
        sure: Whether they differ by more than chance; None if that cannot be told, see `differs`.
        smaller: Whether the lead is smaller here than in print by more than chance.
    """

    as_printed: bool | None
    sure: bool | None
    smaller: bool = False


@dataclass(frozen=True)
class Comparison:
    """Rows of one printed table, of one network on the same data, the best printed one first."""

    table: str
    rows: tuple[Row, ...]

    @property
    def metric(self) -> str:
        """The metric that was printed."""
        return METRICS[self.rows[0].printed[0]]  # type: ignore[index]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What the data sets of a table share: paper, table, network and setting."""
        row = self.rows[0]
        return row.paper, self.table, row.net, row.setting

    @property
    def measured(self) -> list[Row]:
        """The rows that were run."""
        return [row for row in self.rows if row.runs]

    @property
    def scores(self) -> dict[str, Score]:
        """What was measured by the name of the row, the best first; with a beam where all rows have one."""
        beams = {run.get("beam", {}).get("beam") for row in self.measured for run in row.runs}
        found = {row.name: score(row, self.metric, len(beams) == 1 and None not in beams) for row in self.measured}
        return dict(sorted(found.items(), key=lambda item: item[1].mean, reverse=self.metric not in LOWER_IS_BETTER))

    def pairs(self) -> list[Pair]:
        """Judge every pair of measured rows that print tells apart, or of the rows whose lead it calls significant."""
        found, printed = self.scores, {row.name: row.printed[1] for row in self.rows if row.printed}
        significant = {row.name for row in self.rows if row.extra.get("significant", "").partition(": ")[0] == self.table}
        claimed, pairs = significant or printed.keys(), []
        for one, other in combinations([row.name for row in self.measured], 2):
            here, there = found[one].mean - found[other].mean, printed[one] - printed[other]
            if there and (one in claimed or other in claimed):
                smaller = here * there <= 0 or abs(here) < abs(there)
                smaller = smaller and differs(found[one], found[other], there) is True
                pairs.append(Pair(here * there > 0 if abs(here) > EQUAL else None, differs(found[one], found[other]), smaller))
        return pairs


def comparisons(rows: Iterable[Row]) -> list[Comparison]:
    """Collect what the papers compare, from the comments ``# published:``."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        for table in row.tables if row.printed else ():
            groups.setdefault((row.paper, table, row.data, row.net, row.printed[0], row.setting), []).append(row)  # type: ignore[index]
    made = []
    for (_, table, _, _, title, _), group in groups.items():
        higher = METRICS[title] not in LOWER_IS_BETTER
        if len(group) > 1:
            made.append(Comparison(table, tuple(sorted(group, key=lambda row: row.printed[1], reverse=higher))))  # type: ignore[index]
    return made


def verdict(pairs: list[Pair]) -> str:
    """Say in a word whether an order holds."""
    judged = [pair for pair in pairs if pair.sure is not None]
    if not judged:
        return "too few seeds" if pairs else "not measured"
    count = sum(bool(pair.as_printed) for pair in judged if pair.sure)
    supported = more_than_chance(count, len(judged))
    opposed = more_than_chance(sum(pair.as_printed is False for pair in judged if pair.sure), len(judged))
    if not (supported or opposed):
        text = "not decided" if 2 * len(judged) >= len(pairs) else "too few seeds"
    elif opposed:
        text = "mixed" if supported else "contradicted"
    else:
        text = "holds" if count == len(pairs) else "holds in part"
    return text + (", leads smaller" if more_than_chance(sum(pair.smaller for pair in judged), len(judged)) else "")


def tally(pairs: list[Pair]) -> str:
    """Count the pairs behind a verdict."""
    judged = [pair for pair in pairs if pair.sure is not None]
    parts = []
    for kind, name in ((True, "as printed"), (False, "reversed")):
        sure = [pair.sure for pair in judged if pair.as_printed is kind]
        parts.append(f"{len(sure)} {name} ({sure.count(True)})")
    unknown = len(pairs) - len(judged)
    if not judged:
        return f"{unknown} with one seed"
    return ", ".join([*parts, *([f"{unknown} with one seed"] if unknown else [])])


def by_table(compared: Iterable[Comparison]) -> dict[tuple[str, ...], list[Comparison]]:
    """Group what is judged together: the data sets of a table, network and setting, if there are more than three of them."""
    compared = list(compared)
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for one in compared:
        if one.pairs():
            alike = [other for other in compared if other.key == one.key]
            groups.setdefault((*one.key, "" if len(alike) > 3 else one.rows[0].data), []).append(one)
    return groups
