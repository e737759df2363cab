"""Where a hypercomplex network overtakes the real one as weights are pruned."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo_reports.rows import REAL, Arm, is_wide

Floats = NDArray[np.float64]
METHOD = (
    "Both lines are interpolated between rounds as they are drawn: linearly over log(percent), and in the logarithm of the "
    "metric if its axis is logarithmic. What counts is the range of percent that both have, in the rounds that all seeds have. "
    "Leads are differences of runs with the same seed: their mean at the sparse end, with its 95 % t-interval over seeds. "
    "Where that interval contains zero, or with one seed, the comparison is not decided, whatever the picture shows."
)
"""How `compare` computes, for the reader of a report."""
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t at .975 for 1 to 9 degrees of freedom; more degrees use the last."""


class Crossing(NamedTuple):
    """The comparison of an arm with that of the reals.

    Attributes:
        arm: Label of the arm.
        real: Label of the arm of the reals.
        low: Least percent of the real weights that both have.
        high: Greatest such percent.
        below: The percent from which on down to ``low`` the arm is ahead: ``high`` if it is throughout, None if not at ``low``.
        crossings: Every percent at which the means cross, falling.
        by_seed: ``below`` of each seed that both have.
        lead: Means of the arm less that of the reals at ``low``, positive where the arm is better.
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
    def statement(self) -> str:
        """One sentence of what was found."""
        if self.interval is None or abs(self.lead) <= self.interval:
            half = "one seed" if self.interval is None else f"95 % interval ± {self.interval:.2g}"
            return f"{self.arm} against {self.real}: not decided (lead at {self.low:.3g} %: {self.lead:.3g}, {half})"
        span = f"between {self.high:.3g} % and {self.low:.3g} %"
        more = [f"{percent:.3g} %" for percent in self.crossings if percent != self.below]
        if self.below is None:
            what = f"is not ahead of {self.real} at the sparse end, {self.low:.3g} %"
            what += f"; it crosses at {', '.join(more)}" if more else f", nor anywhere {span}: no crossing"
        elif not self.crossings:
            what = f"is ahead of {self.real} everywhere {span}: no crossing"
        else:
            what = f"is ahead of {self.real} from {self.below:.3g} % of the real weights down to {self.low:.3g} %"
            what += f"; above that it crosses at {', '.join(more)} too" if more else ""
        return f"{self.arm} {what} (lead at {self.low:.3g} %: {self.lead:.3g}, 95 % interval ± {self.interval:.2g})"

    @property
    def interval(self) -> float | None:
        """Half of the 95 % t-interval of the lead over seeds; None for fewer than two seeds."""
        seeds = len(self.by_seed)
        if self.lead_spread is None or seeds < 2:
            return None
        return float(T_QUANTILES[min(seeds - 1, len(T_QUANTILES)) - 1] * self.lead_spread / seeds**0.5)


def compare_all(arms: Sequence[Arm], mode: str) -> tuple[list[Crossing], list[str]]:
    """Compare each arm with the reals under the same control, of the same run if it has them; say which cannot be."""
    found, said = [], []
    for arm in arms:
        if arm.algebra == REAL:
            continue
        twins = [other for other in arms if other.algebra == REAL and other.control == arm.control]
        own = [other for other in twins if other.run is arm.run] or twins
        if len(own) != 1:
            reason = "several runs have the real network" if own else "no run has the real network"
            said.append(f"{arm.label}: no crossing point, for {reason}{' with this control' if arm.control else ''}")
            continue
        one = compare(arm, own[0], mode, is_wide(arms))
        found += [one] if one else []
        said += [] if one else [f"{arm.label}: no crossing point, for {own[0].label} has no rounds of as many weights"]
    return found, said


def compare(arm: Arm, real: Arm, mode: str, log: bool = False) -> Crossing | None:
    """Compare an arm with the reals, see `METHOD`; None where they have no two common percents."""
    sign = 1.0 if mode == "max" else -1.0
    scale, back = (np.log, np.exp) if log else (np.asarray, np.asarray)
    lines = [
        (np.array([p.percent for p in one.complete]), {seed: [p.seeds[seed] for p in one.complete] for seed in one.seeds})
        for one in (arm, real)
    ]
    grid = common_grid(lines[0][0], lines[1][0])
    if len(grid) < 2:
        return None

    def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[Floats, float]:
        pair = [at(grid, line[0], scale(values)) for line, values in zip(lines, (ours, theirs), strict=True)]
        return sign * (pair[0] - pair[1]), sign * float(back(pair[0][0]) - back(pair[1][0]))

    means, lead = difference([p.mean for p in arm.complete], [p.mean for p in real.complete])
    seeds = {seed: difference(lines[0][1][seed], lines[1][1][seed]) for seed in arm.seeds if seed in real.seeds}
    leads = [one for _, one in seeds.values()]
    below, crossings = overtakes(grid, means)
    return Crossing(
        arm.label,
        real.label,
        float(grid[0]),
        float(grid[-1]),
        below,
        crossings,
        {seed: overtakes(grid, values)[0] for seed, (values, _) in seeds.items()},
        lead,
        stdev(leads) if len(leads) > 1 else None,
    )


def common_grid(first: Floats, second: Floats) -> Floats:
    """Return the percents of both, rising, within the range that both have."""
    if not len(first) or not len(second):
        return np.array([])
    low, high = max(first.min(), second.min()), min(first.max(), second.max())
    both: Floats = np.unique(np.concatenate((first, second)))
    inside: Floats = both[(both >= low) & (both <= high)]
    return inside


def at(grid: Floats, percents: Floats, values: Floats) -> Floats:
    """Interpolate linearly over the logarithm of percent."""
    order = np.argsort(percents)
    found: Floats = np.interp(np.log(grid), np.log(percents[order]), values[order])
    return found


def overtakes(grid: Floats, difference: Floats) -> tuple[float | None, list[float]]:
    """Return the percent from which on down a difference is positive, and every percent at which its sign changes, falling.

    Where it is zero between two signs, the end that is nearest to the positive side counts.

    Args:
        grid: Percents, rising.
        difference: Its values there; linear over log(percent) between them.

    Example:
        >>> below, crossings = overtakes(np.array([1.0, 10.0, 100.0]), np.array([1.0, -1.0, -2.0]))
        >>> round(below, 3), len(crossings)
        (3.162, 1)
    """
    signs = np.sign(difference)
    kept = np.flatnonzero(signs)
    crossings: list[float] = []
    for one, other in pairwise(kept):
        if signs[one] == signs[other]:
            continue
        if other == one + 1:
            share = difference[one] / (difference[one] - difference[other])
            logarithm = np.log(grid[one]) + share * np.log(grid[other] / grid[one])
            crossings.append(float(np.exp(logarithm)))
        else:
            crossings.append(float(grid[one + 1] if signs[one] > 0 else grid[other - 1]))
    if not signs[0] > 0:
        return None, crossings[::-1]
    return (crossings[0] if crossings else float(grid[-1])), crossings[::-1]
