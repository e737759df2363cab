"""Compare the rows of published tables, and summarize whether the results have their order."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from statistics import mean
from typing import NamedTuple

from zoo_reports.statistics import Score, compare, more_than_chance

from benchmarks.studies.papers_rows import METRICS, Row

BOUNDED = ("accuracy", "map", "mrr", "exact_match")
LOWER_IS_BETTER = ("bits_per_character",)
EQUAL = 1e-6
"""Tolerance for equal means, which are stored as 32-bit floats."""


def score(row: Row, metric: str, beam: bool = False) -> Score:
    """Read a metric of a row, with ``beam`` the result of beam search."""
    values = tuple((run["beam"] if beam else run["metrics"])[metric] for run in row.runs)
    folds: dict[str, float] = {}
    if all("folds" in run and run["data_sha256"] == row.runs[0]["data_sha256"] for run in row.runs) and not beam:
        columns = zip(*([fold[metric] for fold in run["folds"]] for run in row.runs), strict=True)
        folds = dict(zip(row.runs[0]["data_sha256"], map(mean, columns), strict=True))
    return Score(values, row.runs[0].get("tested") if metric in BOUNDED else None, folds)


class Pair(NamedTuple):
    """Result of comparing two rows.

    Attributes:
        as_printed: Whether the row with the better published result is better here; None if they are equal.
        sure: Whether the difference is decided; None if it cannot be tested, see `zoo_reports.statistics.compare`.
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
            published = printed[one] - printed[other]
            if published and (one in claimed or other in claimed):
                ours, theirs = (scores[name] for name in ((one, other) if published > 0 else (other, one)))
                found, missing = compare(ours, theirs), compare(ours, theirs, published=abs(published))
                lead = ours.mean - theirs.mean
                as_printed = lead > 0 if abs(lead) > EQUAL else None
                sure = None if found is None else found.verdict != "not decided"
                pairs.append(Pair(as_printed, sure, missing is not None and missing.verdict == "behind"))
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
