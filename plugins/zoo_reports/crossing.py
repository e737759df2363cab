"""Where a hypercomplex network overtakes the real one as weights are pruned."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo_reports.page import Table
from zoo_reports.rows import Curve, is_wide
from zoo_reports.statistics import half_width
from zoo_reports.style import REAL, percent_text, plus_minus

Floats = NDArray[np.float64]
METHOD = (
    "Lines are interpolated between rounds as drawn: linearly in log(percent), and in the logarithm of the metric if its axis "
    "is logarithmic. The comparison covers the percentages that both arms have, in the rounds that all seeds have. A lead is "
    "the difference of runs with the same seed. The table shows its mean and standard deviation over seeds at the sparse end. "
    "A comparison is not decided if the 95 % t-interval of the lead contains zero, or with one seed."
)
"""How `compare` computes, for the reader of a report."""


class Crossing(NamedTuple):
    """The comparison of an arm with that of the reals.

    Attributes:
        arm: Label of the arm.
        real: Label of the arm of the reals.
        low: Least percent of the real weights that both have.
        high: Greatest such percent.
        below: The percent below which the arm is ahead down to ``low``: ``high`` for the whole range, None if not at ``low``.
        crossings: Every percent at which the means cross, falling.
        by_seed: ``below`` of each seed that both have.
        lead: Mean of the arm minus that of the reals at ``low``; positive where the arm is better.
        lead_spread: Sample standard deviation of the leads of the seeds, None for fewer than two.
    """

    arm: str
    real: str
    low: float
    high: float
    below: float | None
    crossings: list[float]
    by_seed: dict[int, float | None]
    lead: float
    lead_spread: float | None

    @property
    def interval(self) -> float | None:
        """Half of the 95 % t-interval of the lead over seeds; None for fewer than two seeds."""
        seeds = len(self.by_seed)
        return None if self.lead_spread is None else half_width(self.lead_spread**2 / seeds, seeds - 1)

    @property
    def statement(self) -> str:
        """The result in one sentence."""
        if self.interval is None or abs(self.lead) <= self.interval:
            half = "one seed" if self.interval is None else f"95 % interval ± {self.interval:.2g}"
            return f"{self.arm} against {self.real}: not decided (lead at {self.low:.3g} %: {self.lead:.3g}, {half})"
        span = f"between {self.high:.3g} % and {self.low:.3g} %"
        others = ", ".join(f"{percent:.3g} %" for percent in self.crossings if percent != self.below)
        if self.below is None:
            what = f"is not ahead of {self.real} at the sparse end, {self.low:.3g} %"
            what += f"; it crosses at {others}" if others else f", nor anywhere {span}: no crossing"
        elif not self.crossings:
            what = f"is ahead of {self.real} everywhere {span}: no crossing"
        else:
            what = f"is ahead of {self.real} from {self.below:.3g} % of the real weights down to {self.low:.3g} %"
            what += f"; above that it crosses at {others} too" if others else ""
        return f"{self.arm} {what} (lead at {self.low:.3g} %: {self.lead:.3g}, 95 % interval ± {self.interval:.2g})"


def compare_all(arms: Sequence[Curve], mode: str) -> tuple[list[Crossing], list[str]]:
    """Compare each arm with the reals under the same control, of the same run if possible; note those without a comparison."""
    crossings, notes = [], []
    for arm in arms:
        if arm.algebra == REAL:
            continue
        real = [other for other in arms if other.algebra == REAL and other.control == arm.control]
        real = [other for other in real if other.run is arm.run] or real
        if len(real) != 1:
            control = " with this control" if arm.control else ""
            reason = f"{'several runs have' if real else 'no run has'} real networks{control}"
        elif crossing := compare(arm, real[0], mode, is_wide(arms)):
            crossings.append(crossing)
            continue
        else:
            reason = f"{real[0].label} has no rounds with as many weights"
        notes.append(f"{arm.label}: no crossing point, {reason}")
    return crossings, notes


def compare(arm: Curve, real: Curve, mode: str, log: bool = False) -> Crossing | None:
    """Compare an arm with the reals, see `METHOD`; None if their ranges of percent do not overlap."""
    sign = 1.0 if mode == "max" else -1.0
    scale, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    points = [line.complete[::-1] for line in (arm, real)]  # percents rise
    percents = [np.array([point.percent for point in line]) for line in points]
    if not all(map(len, percents)):
        return None
    grid: Floats = np.unique(np.concatenate(percents))
    grid = grid[(grid >= max(line[0] for line in percents)) & (grid <= min(line[-1] for line in percents))]
    if len(grid) < 2:
        return None

    def difference(seed: int | None) -> tuple[Floats, float]:
        values = [scale([point.mean if seed is None else point.seeds[seed] for point in line]) for line in points]
        ours, theirs = (np.interp(np.log(grid), np.log(x), y) for x, y in zip(percents, values, strict=True))
        return sign * (ours - theirs), sign * float(back(ours[0]) - back(theirs[0]))

    (means, lead), seeds = difference(None), {seed: difference(seed) for seed in arm.seeds if seed in real.seeds}
    below, crossings = overtakes(grid, means)
    by_seed = {seed: overtakes(grid, values)[0] for seed, (values, _) in seeds.items()}
    spread = stdev(seed_lead for _, seed_lead in seeds.values()) if len(seeds) > 1 else None
    return Crossing(arm.label, real.label, float(grid[0]), float(grid[-1]), below, crossings, by_seed, lead, spread)


def overtakes(grid: Floats, difference: Floats) -> tuple[float | None, list[float]]:
    """Return the percent below which a difference stays positive, and every percent at which its sign changes, falling.

    Where it is zero between two signs, the end nearest to the positive side counts.

    Args:
        grid: Percents, rising.
        difference: Its values there; linear in log(percent) between them.

    Example:
        >>> below, crossings = overtakes(np.array([1.0, 10.0, 100.0]), np.array([1.0, -1.0, -2.0]))
        >>> round(below, 3), len(crossings)
        (3.162, 1)
    """
    signs = np.sign(difference)
    crossings: list[float] = []
    for left, right in pairwise(np.flatnonzero(signs)):
        if signs[left] == signs[right]:
            continue
        if right == left + 1:
            share = difference[left] / (difference[left] - difference[right])
            crossings.append(float(np.exp(np.log(grid[left]) + share * np.log(grid[right] / grid[left]))))
        else:
            crossings.append(float(grid[left + 1] if signs[left] > 0 else grid[right - 1]))
    ahead = crossings[0] if crossings else float(grid[-1])
    return ahead if signs[0] > 0 else None, crossings[::-1]


def crossing_table(crossings: Sequence[Crossing]) -> Table:
    """Tabulate the crossing points."""
    rows = []
    for crossing in crossings:
        seeds = ", ".join(percent_text(percent) if percent else "none" for percent in crossing.by_seed.values())
        ahead = percent_text(crossing.below) if crossing.below else "none"
        ahead += " (whole range)" if crossing.below and not crossing.crossings else ""
        span = f"{percent_text(crossing.high)} to {percent_text(crossing.low)}"
        every = ", ".join(map(percent_text, crossing.crossings)) or "none"
        lead = plus_minus(crossing.lead, crossing.lead_spread)
        rows.append((crossing.arm, ahead, seeds or "no common seed", every, span, lead))
    head = ("arm", "ahead from", "per seed", "all crossings", "common range", "lead at its low end")
    return Table("Crossing points", head, rows)
