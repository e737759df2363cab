"""Read the rows of lottery runs and collect them into arms: an algebra and a control, over seeds and rounds."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from zoo_experiments.lottery import TICKETS

from zoo.checkpoint.manifest import read_json
from zoo.errors import check_rules
from zoo_reports.style import REAL

LARGEST = 1e100
"""Larger values, which diverged training may report, are not drawn."""
CONTROLS = {None: "", "random": ", random masks", "reinit": ", new initialisation"}


class LotteryRun(NamedTuple):
    """A lottery run: its folder and the content of its ``lottery.json``."""

    folder: Path
    record: dict[str, Any]


class CurvePoint(NamedTuple):
    """A round of an arm.

    Attributes:
        round: Its number.
        survivors: Remaining weights, the mean over seeds.
        percent: The same in percent of the prunable weights of the real network.
        mean: The mean of the metric over seeds.
        spread: Its sample standard deviation, None for one seed.
        seeds: The values by seed.
    """

    round: int
    survivors: float
    percent: float
    mean: float
    spread: float | None
    seeds: dict[int, float]


class Curve(NamedTuple):
    """A line of the plot.

    Attributes:
        label: Its name, unique within a report.
        algebra: The spec of its algebra.
        control: ``random`` (masks), ``reinit`` (another initialisation), or None.
        run: Its run.
        rows: Its rows by seed and round.
        points: Its rounds in order.
    """

    label: str
    algebra: str
    control: str | None
    run: LotteryRun
    rows: dict[tuple[int, int], dict[str, Any]]
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
        is_run = (folder / TICKETS).is_file()
        check_rules((is_run, f"'{folder}' is not a folder of zoo lottery: {TICKETS} is missing"), code="missing")
        runs.append(LotteryRun(folder, read_json(folder / TICKETS)))
        check_rules((bool(runs[-1].record.get("rows")), f"no round of '{folder}' is finished yet"), code="missing")
    data = {run.record["data"]: run.folder for run in runs}
    check_rules((len(data) == 1, f"runs of different data cannot be compared ({', '.join(data)})"), code="mismatch")
    return runs


def lottery_metric(runs: Sequence[LotteryRun], metric: str, mode: str) -> tuple[str, str]:
    """Return the metric to draw, and whether to maximise (``max``) or minimise it (``min``)."""
    chosen = {(run.record["metric"], run.record["mode"]) for run in runs}
    names = ", ".join(sorted(name for name, _ in chosen))
    check_rules(
        (bool(metric) or len(chosen) == 1, f"lottery: the runs have several metrics, use metric={names}"), code="mismatch"
    )
    metric = metric or min(chosen)[0]
    mode = mode or dict(chosen).get(metric, "")
    check_rules((mode in ("min", "max"), f"lottery: is a high or a low {metric} better? add mode=max or mode=min"))
    return metric, mode


def collect(runs: Sequence[LotteryRun], split: str, metric: str) -> list[Curve]:
    """Collect the rows of runs into arms; the reals first, then in the order of the runs, each control after its algebra."""
    groups: dict[tuple[int, str, str | None], dict[tuple[int, int], dict[str, Any]]] = {}
    for number, run in enumerate(runs):
        for row in run.record["rows"]:
            groups.setdefault((number, row["algebra"], row["control"]), {})[row["seed"], row["round"]] = row
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
    known = sorted({name for run in runs for row in run.record["rows"] for name in row[split]})
    text = f"no round has {metric} of the split {split}: it has {', '.join(known) or 'no metrics'}"
    check_rules((bool(arms), text), code="unknown")
    return arms


def curve_points(rows: dict[tuple[int, int], dict[str, Any]], split: str, metric: str) -> list[CurvePoint]:
    """Return the means over seeds of each round that has values."""
    points = []
    for number in sorted({number for _, number in rows}):
        values, left, percents = {}, [], []
        for row in (row for (_, at), row in sorted(rows.items()) if at == number and row["survivors"]):
            value = row[split].get(metric)
            if value is not None and abs(value) < LARGEST:
                values[row["seed"]] = float(value)
                left.append(row["survivors"])
                percents.append(100 * row["survivors"] / row["real_weights"])
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
    for stop in (stop for run in runs for stop in run.record["stopped"]):
        label = f"{stop['algebra']}{CONTROLS[stop['control']]}"
        notes.append(f"{label}, seed {stop['seed']}: no round after {stop['round']}, {stop['reason']}")
    return notes
