"""Read the rows of lottery runs and collect them into arms: an algebra and a control, over seeds and rounds."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from zoo.checkpoint.lottery import RESULTS, check_links, read_results
from zoo.errors import InputError, check_rules, printable

REAL = "real"
"""The algebra whose dense network all percentages are of."""
LARGEST = 1e100
"""What training that has diverged may report; no axis reaches it."""
MOST_ARMS = 100
"""Lines that a report may have."""


class Run(NamedTuple):
    """A lottery run: its folder, and what its ``lottery.json`` says."""

    folder: Path
    record: dict[str, Any]


class Point(NamedTuple):
    """A round of an arm.

    Attributes:
        round: Its number.
        survivors: Weights that are left, the mean over seeds.
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


class Arm(NamedTuple):
    """A line of the plot.

    Attributes:
        label: Its name, unique within a report.
        algebra: The spec of its algebra.
        control: ``random`` (masks), ``reinit`` (another initialisation), or None.
        run: The run it is of.
        rows: Its rows by seed and round.
        points: One for each round, from the first.
    """

    label: str
    algebra: str
    control: str | None
    run: Run
    rows: dict[tuple[int, int], dict[str, Any]]
    points: list[Point]

    @property
    def seeds(self) -> list[int]:
        """The seeds that have a value in any round."""
        return sorted({seed for point in self.points for seed in point.seeds})

    @property
    def complete(self) -> list[Point]:
        """The rounds that all its seeds have."""
        return [point for point in self.points if len(point.seeds) == len(self.seeds)]

    @property
    def dense(self) -> float | None:
        """The level of the dense network, if this is the arm of the reals and has it."""
        first = self.points[0]
        return first.mean if self.algebra == REAL and self.control is None and first.percent == 100 else None


def read_runs(folders: Sequence[str]) -> list[Run]:
    """Read lottery runs.

    Raises:
        InputError: If a folder is no lottery run, its file is damaged, it has no rows yet, or two are of different data.
    """
    paths = [Path(folder).expanduser() for folder in folders]
    twice = [folder for folder, count in Counter(path.resolve() for path in paths).items() if count > 1]
    if twice:
        raise InputError(f"'{twice[0]}' is given twice")
    runs = [Run(path, _read(path)) for path in paths]
    check_same(runs, "data")
    return runs


def check_same(runs: Sequence[Run], key: str) -> None:
    """Refuse runs that differ in what an axis needs."""
    first = runs[0]
    for run in runs[1:]:
        one, other = (printable(str(run.record[key])) for run in (first, run))
        if one != other:
            which = f"{one} in {first.folder}, {other} in {run.folder}"
            raise InputError(f"runs of different {key} have no common axis ({which}): make a report of each")


def measured(runs: Sequence[Run], metric: str, mode: str) -> tuple[str, str]:
    """Return the metric to be drawn, and whether it is to be high (``max``) or low (``min``).

    Raises:
        InputError: If none is given and the runs watch different ones, or it is not known which is better.
    """
    if not metric:
        for key in ("metric", "mode"):
            check_same(runs, key)
    metric = metric or str(runs[0].record["metric"])
    known = {run.record["mode"] for run in runs if run.record["metric"] == metric}
    check_rules(
        (mode in ("", "min", "max"), f"lottery: mode={mode!r}: use min or max"),
        (bool(mode) or len(known) == 1, f"lottery: is {metric} to be low or high? add mode=min or mode=max"),
        (not mode or known <= {mode}, f"lottery: mode={mode}: the run says {''.join(known)} for {metric}"),
    )
    return metric, mode or known.pop()


def _read(folder: Path) -> dict[str, Any]:
    if not (folder / RESULTS).is_file():
        what = "there is no such folder" if not folder.exists() else f"there is no {RESULTS} in it"
        raise InputError(f"'{folder}' is no lottery run: {what}; give a folder that zoo lottery wrote")
    check_links(folder)
    record = read_results(folder / RESULTS)
    if not record["rows"]:
        raise InputError(f"{folder / RESULTS} has no rows yet: its first round is not finished")
    return record


def value_of(row: dict[str, Any], split: str, metric: str) -> float | None:
    """Return a metric of a row if it has it and it is a number that can be drawn."""
    value = row[split].get(metric)
    return float(value) if value is not None and -LARGEST < value < LARGEST else None


def collect(runs: Sequence[Run], split: str, metric: str) -> list[Arm]:
    """Collect the rows of runs into arms; the reals first, then in the order of the runs, each control after its algebra.

    Raises:
        InputError: If no row has the metric on this split.
    """
    found: dict[tuple[int, str, str | None], dict[tuple[int, int], dict[str, Any]]] = {}
    for number, run in enumerate(runs):
        for row in run.record["rows"]:
            found.setdefault((number, row["algebra"], row["control"]), {})[row["seed"], row["round"]] = row
    if len(found) > MOST_ARMS:
        raise InputError(f"{len(found):,} lines are too many for a plot, which has at most {MOST_ARMS}: give fewer runs")
    algebras = list(dict.fromkeys(algebra for _, algebra, _ in found))
    algebras.sort(key=lambda algebra: algebra != REAL)
    several = Counter((algebra, control) for _, algebra, control in found)
    names = run_names(runs)
    arms = []
    for number, algebra, control in sorted(found, key=lambda key: (algebras.index(key[1]), key[2] or "", key[0])):
        rows = found[number, algebra, control]
        label = _label(algebra, control)
        label += f" ({names[number]})" if several[algebra, control] > 1 else ""
        if points := _points(rows, split, metric):
            arms.append(Arm(label, algebra, control, runs[number], rows, points))
    if not arms:
        there = sorted({name for run in runs for row in run.record["rows"] for name in row.get(split) or {}})
        raise InputError(f"no round has {metric} of the split {split}: it has {printable(', '.join(there)) or 'no metrics'}")
    return arms


CONTROLS = {"random": "random masks", "reinit": "new initialisation"}


def run_names(runs: Sequence[Run]) -> list[str]:
    """Name runs by their folders, with the folders above where two have one name."""
    depth = 1
    paths = [run.folder.resolve().parts for run in runs]
    while len({parts[-depth:] for parts in paths}) < len(paths):
        depth += 1
    return ["/".join(parts[-depth:]) for parts in paths]


def _points(rows: dict[tuple[int, int], dict[str, Any]], split: str, metric: str) -> list[Point]:
    points = []
    for number in sorted({number for _, number in rows}):
        here = {seed: row for (seed, at), row in sorted(rows.items()) if at == number and row["survivors"]}
        values = {seed: value for seed, row in here.items() if (value := value_of(row, split, metric)) is not None}
        if values:
            percent = mean(100 * here[seed]["survivors"] / here[seed]["real_weights"] for seed in values)
            survivors = mean(here[seed]["survivors"] for seed in values)
            spread = stdev(values.values()) if len(values) > 1 else None
            points.append(Point(number, survivors, percent, mean(values.values()), spread, values))
    return points


def is_wide(arms: Sequence[Arm]) -> bool:
    """Return whether a metric, such as perplexity, needs a logarithmic axis."""
    means = [point.mean for arm in arms for point in arm.points]
    return min(means) > 0 and max(means) / min(means) > 20


def gaps(runs: Sequence[Run], arms: Sequence[Arm]) -> list[str]:
    """Say what the lines leave out: rounds without a value, rounds that not all seeds have, arms that were stopped."""
    said = []
    for arm in arms:
        without = [key for key in arm.rows if not any(key[0] in p.seeds for p in arm.points if p.round == key[1])]
        said += [f"{arm.label}, seed {seed}, round {number}: no value, not drawn" for seed, number in sorted(without)]
        if thin := [str(point.round) for point in arm.points if len(point.seeds) < len(arm.seeds)]:
            said.append(f"{arm.label}: not all {len(arm.seeds)} seeds have round {', '.join(thin)} (hollow points)")
    for run in runs:
        said += [_stop(one) for one in run.record["stopped"]]
    return said


def _stop(one: dict[str, Any]) -> str:
    label = _label(one["algebra"], one["control"])
    return f"{label}, seed {one['seed']}: no round after {one['round']}, {one['reason']}"[:300]


def _label(algebra: str, control: str | None) -> str:
    return f"{algebra}, {CONTROLS.get(control, control)}" if control else algebra
