"""Curves of a metric against the weights left in lottery runs, and where a hypercomplex network overtakes the real one."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from zoo_experiments.lottery import TICKETS
from zoo_experiments.rows import GridRow, LotteryResults, Metrics

from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError
from zoo_reports.page import REAL, Table, percent_text, plus_minus
from zoo_reports.statistics import Difference, with_interval

Floats = NDArray[np.float64]
LARGEST = 1e100
"""Larger values, which diverged training may report, are not drawn."""
CONTROLS = {None: "", "random": ", random masks", "reinit": ", new initialization"}


class LotteryRun(NamedTuple):
    """The folder and the results of a lottery run."""

    folder: Path
    results: LotteryResults


class CurvePoint(NamedTuple):
    """A round of an arm: remaining weights (mean over seeds), in percent of those of the real network, and its metric.

    ``mean`` and ``spread`` are the mean and the sample standard deviation (None for one seed) of the values in ``seeds``.
    """

    round: int
    survivors: float
    percent: float
    mean: float
    spread: float | None
    seeds: dict[int, float]


class Curve(NamedTuple):
    """An arm: an algebra and a control of a run, its rows by seed and round, and its rounds; the label is unique."""

    label: str
    algebra: str
    control: str | None
    run: LotteryRun
    rows: dict[tuple[int, int], GridRow]
    points: list[CurvePoint]

    @property
    def seeds(self) -> list[int]:
        """The seeds that have a value in any round."""
        return sorted({seed for point in self.points for seed in point.seeds})

    @property
    def complete(self) -> list[CurvePoint]:
        """The rounds that all its seeds have."""
        return [point for point in self.points if len(point.seeds) == len(self.seeds)]

    @property
    def dense(self) -> float | None:
        """The metric of the dense network, if this is the arm of the reals and has it."""
        first = self.points[0]
        return first.mean if self.algebra == REAL and self.control is None and first.percent == 100 else None


def read_runs(folders: Sequence[str]) -> list[LotteryRun]:
    """Read lottery runs."""
    runs = []
    for folder in dict.fromkeys(Path(folder).expanduser() for folder in folders):
        if not (folder / TICKETS).exists():
            raise InputError(f"'{folder}' is not a run of zoo lottery: no {TICKETS}", code="missing")
        results = LotteryResults.from_json(read_json(folder / TICKETS), folder / TICKETS)
        if not results.rows:
            raise InputError(f"no round of '{folder}' is finished yet", code="missing")
        runs.append(LotteryRun(folder, results))
    data = dict.fromkeys(str(run.results.data) for run in runs)
    if len(data) != 1:
        raise InputError(f"runs of different data cannot be compared ({', '.join(data)})", code="mismatch")
    return runs


def lottery_metric(runs: Sequence[LotteryRun], metric: str, mode: str) -> tuple[str, str]:
    """Return the metric to draw, and whether to maximize (``max``) or minimize it (``min``)."""
    chosen = {(run.results.metric, run.results.mode) for run in runs}
    names = ", ".join(sorted(name for name, _ in chosen))
    is_clear = bool(metric) or len(chosen) == 1
    if not is_clear:
        raise InputError(f"lottery: the runs have several metrics, use metric={names}", code="mismatch")
    metric = metric or min(chosen)[0]
    mode = mode or dict(chosen).get(metric, "")
    if mode not in ("min", "max"):
        raise InputError(f"lottery: is a high or a low {metric} better? add mode=max or mode=min")
    return metric, mode


def collect(runs: Sequence[LotteryRun], split: str, metric: str) -> list[Curve]:
    """Collect the rows of runs into arms; the reals first, then in the order of the runs, each control after its algebra."""
    groups: dict[tuple[int, str, str | None], dict[tuple[int, int], GridRow]] = {}
    for number, run in enumerate(runs):
        for row in run.results.rows:
            groups.setdefault((number, row.algebra, row.control), {})[row.seed, row.round] = row
    algebras = sorted(dict.fromkeys(algebra for _, algebra, _ in groups), key=lambda algebra: algebra != REAL)
    repeats = Counter((algebra, control) for _, algebra, control in groups)
    names = [run.folder.name for run in runs]
    arms = []
    for number, algebra, control in sorted(groups, key=lambda key: (algebras.index(key[1]), key[2] or "", key[0])):
        name = names[number] if names.count(names[number]) == 1 else str(runs[number].folder)
        label = f"{algebra}{CONTROLS[control]}" + (f" ({name})" if repeats[algebra, control] > 1 else "")
        rows = groups[number, algebra, control]
        if points := curve_points(rows, split, metric):
            arms.append(Curve(label, algebra, control, runs[number], rows, points))
    known = sorted({name for run in runs for row in run.results.rows for name in _values(row, split)})
    text = f"no round has {metric} of the split {split}: it has {', '.join(known) or 'no metrics'}"
    if not arms:
        raise InputError(text, code="unknown")
    return arms


def _values(row: GridRow, split: str) -> Metrics:
    return row.test if split == "test" else row.val


def curve_points(rows: dict[tuple[int, int], GridRow], split: str, metric: str) -> list[CurvePoint]:
    """Return the means over seeds of each round that has values."""
    points = []
    for number in sorted({number for _, number in rows}):
        values, left, percents = {}, [], []
        for row in (row for (_, at), row in sorted(rows.items()) if at == number and row.survivors):
            value = _values(row, split).get(metric)
            if value is not None and abs(value) < LARGEST:
                values[row.seed] = float(value)
                left.append(row.survivors)
                percents.append(100 * row.survivors / row.real_weights)
        if values:
            spread = stdev(values.values()) if len(values) > 1 else None
            points.append(CurvePoint(number, mean(left), mean(percents), mean(values.values()), spread, values))
    return points


def is_wide(arms: Sequence[Curve]) -> bool:
    """Return whether a metric, such as perplexity, needs a logarithmic axis."""
    means = [point.mean for arm in arms for point in arm.points]
    return min(means) > 0 and max(means) / min(means) > 20


def gaps(runs: Sequence[LotteryRun], arms: Sequence[Curve]) -> list[str]:
    """Note missing data: rounds without a value, rounds without some of the seeds, and stopped arms."""
    notes = []
    for arm in arms:
        missing = {*arm.rows} - {(seed, point.round) for point in arm.points for seed in point.seeds}
        notes += [f"{arm.label}, seed {seed}, round {number}: no value, not drawn" for seed, number in sorted(missing)]
        if thin := [str(point.round) for point in arm.points if point not in arm.complete]:
            notes.append(f"{arm.label}: round {', '.join(thin)} with fewer than {len(arm.seeds)} seeds (hollow points)")
    for stop in (stop for run in runs for stop in run.results.stopped):
        label = f"{stop.algebra}{CONTROLS[stop.control]}"
        notes.append(f"{label}, seed {stop.seed}: no round after {stop.round}, {stop.reason}")
    return notes


# --- crossing points ---

METHOD = (
    "Lines are interpolated between rounds as drawn: linearly in log(percent), and in the logarithm of the metric if its axis "
    "is logarithmic. The comparison covers the percentages that both arms have, in the rounds that all seeds have, and is made "
    "at the lowest of them, between runs with the same seed. Sentences give the mean difference with its 95 % t-interval, "
    "tables with its standard deviation. A comparison is not decided if the interval contains zero, or with one seed."
)
"""How `compare` computes, for the reader of a report."""


class Crossing(NamedTuple):
    """The comparison of an arm with that of the reals, between the percent ``low`` and ``high`` of the real weights.

    Attributes:
        below: The percent below which the arm is ahead down to ``low``: ``high`` for the whole range, None if not at ``low``.
        crossings: Every percent at which the means cross, falling.
        by_seed: ``below`` of each seed that both have.
        lead: Mean difference at ``low`` of the seeds that both have, or else that of the means; positive if the arm is better.
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
    def difference(self) -> Difference | None:
        """The lead with its interval over pairs of runs with the same seed; None for fewer than two."""
        seeds = len(self.by_seed)
        return None if self.lead_spread is None else with_interval(self.lead, [(self.lead_spread**2 / seeds, seeds - 1)])

    @property
    def statement(self) -> str:
        """The result in one sentence."""
        at = f"at {self.low:.3g} % of the real weights: {self.lead:+.3g}"
        found = self.difference
        if found is None or found.verdict == "not decided":
            half = ", one seed" if found is None else f" ± {found.interval:.2g}"
            return f"{self.arm} against {self.real}: not decided {at}{half}"
        means = f"; the means cross at {self.below:.3g} %" if self.below and self.crossings else ""
        better = "better" if found.verdict == "ahead" else "worse"
        return f"{self.arm} is {better} than {self.real} {at} ± {found.interval:.2g}{means}"


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
    leads = [seed_lead for _, seed_lead in seeds.values()]
    lead, spread = mean(leads or [lead]), stdev(leads) if len(leads) > 1 else None
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
        span = f"{percent_text(crossing.high)} to {percent_text(crossing.low)}"
        every = ", ".join(map(percent_text, crossing.crossings)) or "none"
        lead = plus_minus(crossing.lead, crossing.lead_spread)
        rows.append((crossing.arm, every, seeds or "no common seed", span, lead))
    head = ("arm", "means cross at", "each seed is ahead below", "common range", "difference at its low end")
    return Table("Crossing points", head, rows)
