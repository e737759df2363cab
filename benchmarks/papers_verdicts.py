"""What the papers compare, what was found here, and whether their order holds."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, takewhile
from statistics import mean, stdev
from typing import NamedTuple

from benchmarks.papers_chance import Figure, counts, figure, more_than_chance, over_folds
from benchmarks.papers_rows import FIGURES, Row

LESS_IS_BETTER = ("bits_per_character",)
EQUAL = 1e-6
"""Means of as many right answers differ by less, for they are stored in 32 bits."""


class Pair(NamedTuple):
    """Two rows of a comparison.

    Attributes:
        as_printed: Whether the one that is better in print is better here; None if they are equal.
        sure: Whether they differ by more than chance; None if that cannot be told, see `counts`.
        less: Whether the one's lead is smaller here than in print by more than chance.
    """

    as_printed: bool | None
    sure: bool | None
    less: bool = False


Pairs = list[Pair]


@dataclass(frozen=True)
class Comparison:
    """Rows that a paper printed in one table, of one network on the same data.

    Attributes:
        paper: Folder of the paper.
        table: Where it was printed.
        data: The data, as the configurations name them.
        net: The network.
        title: What was printed, a name of `FIGURES`.
        rows: All rows with a printed figure, the best printed one first.
        setting: See `Row.setting`.
    """

    paper: str
    table: str
    data: str
    net: str
    title: str
    rows: tuple[Row, ...]
    setting: str = ""

    @property
    def less(self) -> bool:
        """Whether less is better."""
        return FIGURES[self.title] in LESS_IS_BETTER

    @property
    def measured(self) -> list[Row]:
        """Those that were run, in the paper's order."""
        return [row for row in self.rows if row.runs]

    @property
    def beam(self) -> int | None:
        """The beam that all of its rows were also tested with."""
        beams = {run.get("beam", {}).get("beam") for row in self.measured for run in row.runs}
        return beams.pop() if len(beams) == 1 else None

    @property
    def figures(self) -> dict[str, Figure]:
        """What was measured, by the name of the row, the best first."""
        found = {row.name: figure(row, FIGURES[self.title], self.beam is not None) for row in self.measured}
        return dict(sorted(found.items(), key=lambda item: item[1].mean, reverse=not self.less))

    def label(self, name: str) -> str:
        """Name a row by what the others do not share."""
        parts = zip(*(row.name.split("_") for row in self.rows), strict=False)
        shared = takewhile(lambda column: len(set(column)) == 1, parts)
        return name.removeprefix("".join(f"{column[0]}_" for column in shared))

    @property
    def significant(self) -> dict[str, str]:
        """The rows whose lead is called significant in print, and over what; the paper's claim is then theirs alone."""
        said = {row.name: row.extra.get("significant", "").partition(": ") for row in self.rows}
        return {name: what for name, (table, _, what) in said.items() if table == self.table}

    def pairs(self) -> Pairs:
        """Judge every pair of measured rows that print tells apart, or of those that it claims if it says which."""
        found, printed = self.figures, {row.name: row.printed[1] for row in self.rows if row.printed}
        claimed = self.significant or printed
        pairs = []
        for one, other in combinations([row.name for row in self.measured], 2):
            here, there = found[one].mean - found[other].mean, printed[one] - printed[other]
            if there and (one in claimed or other in claimed):
                less = here * there <= 0 or abs(here) < abs(there)
                less = less and counts(found[one], found[other], there) is True
                pairs.append(Pair(here * there > 0 if abs(here) > EQUAL else None, counts(found[one], found[other]), less))
        return pairs


def comparisons(rows: Iterable[Row]) -> list[Comparison]:
    """Collect what the papers compare, from the comments ``# published:``."""
    groups: dict[tuple[str, str, str, str, str, str], list[Row]] = {}
    for row in rows:
        for table in row.tables if row.printed else ():
            key = row.paper, table, row.data, row.net, row.printed[0], row.setting  # type: ignore[index]
            groups.setdefault(key, []).append(row)
    made = []
    for (paper, table, data, net, title, setting), group in groups.items():
        if len(group) < 2:
            continue
        less = FIGURES[title] in LESS_IS_BETTER
        ranked = sorted(group, key=lambda row: row.printed[1], reverse=not less)  # type: ignore[index]
        made.append(Comparison(paper, table, data, net, title, tuple(ranked), setting))
    return made


def verdict(pairs: Pairs) -> str:
    """Say in a word whether an order holds; nothing is decided by as few pairs as chance alone lets pass, or by few of them."""
    judged = [pair for pair in pairs if pair.sure is not None]
    if not judged:
        return "too few seeds" if pairs else "not measured"
    count = sum(bool(pair.as_printed) for pair in judged if pair.sure)
    for_it = more_than_chance(count, len(judged))
    against = more_than_chance(sum(pair.as_printed is False for pair in judged if pair.sure), len(judged))
    if not (for_it or against):
        text = "not decided" if 2 * len(judged) >= len(pairs) else "too few seeds"
    elif against:
        text = "mixed" if for_it else "contradicted"
    else:
        text = "holds" if count == len(pairs) else "holds in part"
    return text + (", leads smaller" if more_than_chance(sum(pair.less for pair in judged), len(judged)) else "")


def tally(pairs: Pairs) -> str:
    """Count the pairs behind a verdict."""
    if not pairs:
        return "no pair of rows to judge was run"
    judged = [pair for pair in pairs if pair.sure is not None]
    unknown = len(pairs) - len(judged)
    if not judged:
        return f"{_pairs(unknown)}, each with a row of one seed"
    stand = [pair.sure for pair in judged if pair.as_printed]
    turned = [pair.sure for pair in judged if pair.as_printed is False]
    text = f"of {_pairs(len(judged))} {len(stand)} as printed ({stand.count(True)} beyond chance), "
    text += f"{len(turned)} the other way round ({turned.count(True)} beyond chance)"
    equal, smaller = len(judged) - len(stand) - len(turned), sum(pair.less for pair in judged)
    text += f", {equal} equal" if equal else ""
    text += f"; the lead is smaller than printed, beyond chance, in {smaller}" if smaller else ""
    return text + (f"; {_pairs(unknown)} more with a row of one seed" if unknown else "")


def numbers(pairs: Pairs) -> list[str]:
    """Count what `tally` tells in words; equal ones are in no column."""
    kinds = [[pair.sure for pair in pairs if pair.as_printed is kind and pair.sure is not None] for kind in (True, False)]
    unknown = sum(pair.sure is None for pair in pairs)
    smaller = sum(pair.less for pair in pairs)
    return [*(f"{len(kind)} ({kind.count(True)})" for kind in kinds), str(smaller), str(unknown)]


def _pairs(number: int) -> str:
    """Count pairs in words."""
    return "one pair" if number == 1 else f"{number} pairs"


def lines(compared: Comparison) -> list[str]:
    """Write what a paper found, what was found here, and whether the order holds."""
    digits = 1 if compared.title == "BLEU" else 3
    printed = ", ".join(f"{compared.label(row.name)} {row.printed[1]:g}" for row in compared.rows if row.printed)
    here = []
    for name, found in compared.figures.items():
        spread = f" ± {stdev(found.values):.{digits}f}" if len(found.values) > 1 else " (one seed)"
        here.append(f"{compared.label(name)} {found.mean:.{digits}f}{spread}")
    beam = f" with a beam of {compared.beam}" if compared.beam else ""
    missing = [compared.label(row.name) for row in compared.rows if not row.runs]
    absent = f"; not run: {', '.join(missing)}" if missing else ""
    pairs = compared.pairs()
    where = compared.table if "," in compared.table else f"{compared.table}, {compared.net}"
    claimed = "".join(f" Significant there: {compared.label(name)} {what}." for name, what in compared.significant.items())
    return [
        f"- In print ({where}), {compared.title}: {printed}.{claimed}",
        f"- Here{beam}: {', '.join(here) or 'nothing'}{absent}.{_against_print(compared, digits)}{_noise(compared)}",
        f"- Order: {verdict(pairs)}; {tally(pairs)}.",
        "",
    ]


def _against_print(compared: Comparison, digits: int) -> str:
    """Say by how much figures differ from print: that of the best row in print, and those of the others."""
    found = compared.figures
    first, *others = (found[row.name].mean - row.printed[1] if row.runs and row.printed else None for row in compared.rows)
    rest = [one for one in others if one is not None]
    if first is None or not rest:
        return ""
    name = compared.label(compared.rows[0].name)
    return f" Here minus print: {name} {first:+.{digits}f}, the others {mean(rest):+.{digits}f} on average."


def _noise(compared: Comparison) -> str:
    """Say how large chance is in a comparison."""
    found = list(compared.figures.values())
    seeds = [one.over_seeds for one in found if one.over_seeds is not None]
    texts = [f"{max(seeds):.{1 if compared.title == 'BLEU' else 4}f} over seeds"] if seeds else []
    tested = {one.tested for one in found if one.tested}
    if len(tested) == 1:
        texts.append(f"{max(one.over_test for one in found):.4f} over {tested.pop():,} tested")
    text = f" Standard error of one row: up to {', up to '.join(texts)}." if texts else ""
    folded = [one for one in found if one.folds and one.folds.keys() == found[0].folds.keys()]
    if errors := [over_folds(*pair)[0] for pair in combinations(folded, 2)]:
        text += f" Of a difference, over {len(folded[0].folds)} folds: {min(errors):.4f} to {max(errors):.4f}."
    return text


def together(compared: Iterable[Comparison]) -> list[list[Comparison]]:
    """Group what is judged in one line: a table's data sets of one network and setting, if it has more than three of them."""
    compared = list(compared)
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for one in (one for one in compared if one.pairs()):
        key = one.paper, one.table, one.net, one.setting
        alike = [other for other in compared if (other.paper, other.table, other.net, other.setting) == key]
        groups.setdefault((*key, "" if len(alike) > 3 else one.data), []).append(one)
    return list(groups.values())
