"""The report ``sweep``: the runs of a grid as a table, plots and one page; means over seeds, and the best by validation."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from zoo.checkpoint.card import number
from zoo.checkpoint.sweep import RESULTS, read_rows
from zoo.errors import InputError, check_rules
from zoo.report import Report
from zoo_reports.page import Page, Table
from zoo_reports.style import PALETTE, axis_title, log_axis, pictures, plain_axes, plus_minus

SEED = "seed"
"""The axis of means and spreads."""


class Group(NamedTuple):
    """The runs of a sweep that differ only in their seed.

    Attributes:
        label: The labels of its axes.
        axes: The label by axis.
        values: The metric of each run.
        chosen: The validation metric that chose the epoch of each run.
        parameters: Trainable parameters, and those of the same network over the reals.
        color: Its colour, by the label of the first axis.
    """

    label: str
    axes: dict[str, str]
    values: list[float]
    chosen: list[float]
    parameters: tuple[int, int]
    color: str

    @property
    def text(self) -> str:
        """The mean with its sample standard deviation."""
        return plus_minus(mean(self.values), stdev(self.values) if len(self.values) > 1 else None)


def sweep(runs: Sequence[str], *, metric: str = "") -> Report:
    """Runs of a grid: test metric, spread over seeds, parameters, best by validation (png, svg, html, md).

    Args:
        runs: One folder that ``zoo sweep`` wrote.
        metric: The test metric to show, or the validation metric if there is no test split; by default the one that chose the
            epochs, or else the first.

    Raises:
        InputError: If the folder is not a sweep, has no finished run, or the metric is not measured.
    """
    check_rules((len(runs) == 1, "sweep reports on one folder"))
    folder = Path(runs[0]).expanduser()
    rows = read_rows(folder / RESULTS) if (folder / RESULTS).is_file() else []
    check_rules((bool(rows), f"no run of a sweep is finished in '{folder}'"), code="missing")
    metric, split = measured(rows, metric, folder)
    ranked = ranking(rows)
    groups = collect(rows, metric, split)
    best = best_of(groups, ranked[1]) if ranked else None
    table = as_table(groups, f"{split} {metric}", f"validation {ranked[0]}" if ranked else "validation", best)
    axis = axis_title(metric, split)
    left = len(rows) - sum(len(group.values) for group in groups)
    notes = [
        f"Best in validation ({ranked[0]}): {best.label}."
        if best and ranked
        else "Not ranked: data or validation metrics differ.",
        *([f"{left} of {len(rows)} runs have no such value and are left out."] if left else []),
    ]
    page = Page(f"{folder.name}: {axis}", "Mean ± sample standard deviation over the runs of each row.", notes, [table])
    values = {"metric": metric, "best": best.axes if best else None, "groups": [group._asdict() for group in groups]}
    files = pictures("sweep", lambda: draw(groups, axis, page.title))
    return page.report("sweep", values, files, table._replace(title=f"{page.title}\n{page.about}"))


def measured(rows: Sequence[dict[str, Any]], metric: str, folder: Path) -> tuple[str, str]:
    """Return the metric to show and its split, which is validation if no run has measured a test split."""
    validation = list(dict.fromkeys(found[0] for row in rows if (found := chosen_by(row))))
    tested = (name for row in rows for name, value in row["metrics"].items() if isinstance(value, int | float))
    names, split = list(dict.fromkeys(tested)), "test"
    if not names:
        names, split = validation, "validation"
    check_rules((bool(names), f"no run in '{folder}' has measured anything"), code="missing")
    if metric and metric not in names:
        raise InputError(f"no run in '{folder}' has measured {metric}: use {' or '.join(names)}", code="unknown")
    better = [name for name in names if name != "loss"]
    return metric or next((name for name in validation if name in better), (better or names)[0]), split


def chosen_by(row: dict[str, Any]) -> tuple[str, str] | None:
    """Return the validation metric that chose the epoch of a run, and whether it is maximised (``max``)."""
    found = row.get("validation") or {}
    return None if found.get("value") is None else (str(found.get("metric") or "loss"), str(found.get("mode") or "min"))


def ranking(rows: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the validation metric that ranks the runs; None if they differ in it or in their data."""
    metrics = {chosen_by(row) for row in rows}
    seeds = {row["axes"].get(SEED) for row in rows}
    data = {(row["axes"].get(SEED), str(row.get("data_sha256") or row["options"].get("data"))) for row in rows}
    return metrics.pop() if len(metrics) == 1 and len(data) == len(seeds) else None


def collect(rows: Sequence[dict[str, Any]], metric: str, split: str) -> list[Group]:
    """Group the measured runs that differ only in their seed, in the order of the grid."""
    members: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for row in rows:
        if isinstance(figure(row, metric, split), int | float):
            members.setdefault(tuple((axis, label) for axis, label in row["axes"].items() if axis != SEED), []).append(row)
    colors: dict[str, str] = {}
    groups = []
    for place, of_group in members.items():
        axes = dict(place)
        color = colors.setdefault(next(iter(axes.values()), ""), PALETTE[len(colors) % len(PALETTE)])
        validation = [(row.get("validation") or {}).get("value") for row in of_group]
        counts = of_group[0]["parameters"]
        numbers = (int(counts.get("total") or 0), int(counts.get("real_twin") or 0))
        values = [float(figure(row, metric, split)) for row in of_group]
        chosen = [value for value in validation if value is not None]
        groups.append(Group(", ".join(axes.values()) or "all", axes, values, chosen, numbers, color))
    return groups


def figure(row: dict[str, Any], metric: str, split: str) -> Any:
    """Return a metric of a run, None if it was not measured."""
    if split == "test":
        return row["metrics"].get(metric)
    return row["validation"]["value"] if (found := chosen_by(row)) and found[0] == metric else None


def best_of(groups: Sequence[Group], mode: str) -> Group | None:
    """Return the group with the best mean in validation, if all runs have a value there."""
    if any(len(group.chosen) < len(group.values) for group in groups):
        return None
    return (max if mode == "max" else min)(groups, key=lambda group: mean(group.chosen))


def as_table(groups: Sequence[Group], metric: str, validation: str, best: Group | None) -> Table:
    """Tabulate the groups."""
    axes = list(groups[0].axes)
    rows = []
    for group in groups:
        total, twin = group.parameters
        row = [*group.axes.values()] if axes else [group.label]
        row += [str(len(group.values)), group.text]
        row += [number(mean(group.chosen)) if group.chosen else ""] if validation != metric else []
        rows.append([*row, f"{total:,}", f"{total / twin:.1%}" if twin else "", "best" if group is best else ""])
    figures = [metric] if validation == metric else [metric, validation]
    return Table("Runs", [*(axes or [""]), "runs", *figures, "parameters", "of the real", ""], rows)


def draw(groups: Sequence[Group], axis: str, title: str) -> Any:
    """Draw every run as a dot and every mean as a line, by group and against the parameters."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.6 + 0.32 * max(6, len(groups))), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2), sharex=False)
    for height, group in enumerate(groups):
        left.plot(group.values, [height] * len(group.values), "o", color=group.color, alpha=0.55, markersize=5)
        left.plot([mean(group.values)] * 2, [height - 0.3, height + 0.3], color=group.color, linewidth=2)
        right.plot([group.parameters[0]] * len(group.values), group.values, "o", color=group.color, alpha=0.4, markersize=4)
        right.plot([group.parameters[0]], [mean(group.values)], "D", color=group.color, markersize=7, markeredgecolor="white")
    left.set_yticks(range(len(groups)), [group.label for group in groups])
    left.set_ylim(len(groups) - 0.4, -0.6)
    left.set_xlabel(axis)
    plain_axes(left, "x")
    log_axis(right, "x", [max(1, group.parameters[0]) for group in groups])
    right.set_xlabel("trainable parameters")
    right.set_ylabel(axis)
    plain_axes(right)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure
