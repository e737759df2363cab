"""The report ``sweep``: the runs of a grid as a table, plots and one page; means over seeds, and the best by validation."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from zoo_experiments.sweep import read_rows

from zoo.errors import InputError
from zoo.reports import Report
from zoo_reports.page import PALETTE, Page, Table, axis_title, log_axis, pictures, plain_axes, plus_minus

Row = dict[str, Any]


class Group(NamedTuple):
    """The runs of a sweep that differ only in their seed, with the metric of each and the one that chose its epoch.

    ``axes`` are the labels by axis; ``parameters`` are the trainable ones, and those of the same network over the reals.
    """

    label: str
    axes: dict[str, str]
    values: list[float]
    chosen: list[float]
    parameters: tuple[int, int]


def sweep(runs: Sequence[str]) -> Report:
    """Runs of a grid: test metric, spread over seeds, parameters, best by validation (png, svg, html, md).

    The metric is the one that selected the epochs, or else the first; without a test split, the validation metric.
    """
    if len(runs) != 1:
        raise InputError("sweep is a report on one folder, got several")
    folder = Path(runs[0]).expanduser()
    rows = read_rows(folder)
    metric, split = sweep_metric(rows, folder)
    groups, ranked = collect(rows, metric, split), ranking(rows)
    best = None
    if ranked and all(len(group.chosen) == len(group.values) for group in groups):
        best = (max if ranked[1] == "max" else min)(groups, key=lambda group: mean(group.chosen))
    notes = ["Not ranked: data or validation metrics differ."]
    if best and ranked:
        better = "higher" if ranked[1] == "max" else "lower"
        notes = [f"Best by validation {ranked[0]} ({better} is better): {best.label}. The test split does not choose."]
    if left := len(rows) - sum(len(group.values) for group in groups):
        notes.append(f"{left} of {len(rows)} runs have no such value and are left out.")
    axis = axis_title(metric, split)
    table = as_table(groups, f"{split} {metric}", f"validation {ranked[0]}" if ranked else "validation", best)
    page = Page(f"{folder.name}: {axis}", "Mean ± sample standard deviation over the runs of each row.", notes, [table])
    values = {"metric": metric, "best": best.axes if best else None, "groups": [group._asdict() for group in groups]}
    files = pictures("sweep", lambda: draw(groups, axis, page.title))
    return page.report("sweep", values, files)


def chosen_by(row: Row) -> dict[str, Any]:
    """Return metric, mode and value of the validation that chose the epoch of a run; an empty dict without one."""
    chosen: dict[str, Any] = row.get("validation") or {}
    return {} if chosen.get("value") is None else chosen


def sweep_metric(rows: Sequence[Row], folder: Path) -> tuple[str, str]:
    """Return the metric to show and its split, which is validation if no run has measured a test split."""
    validation = [chosen["metric"] for row in rows if (chosen := chosen_by(row))]
    tested = [name for row in rows for name, value in row["metrics"].items() if value is not None]
    names, split = (tested, "test") if tested else (validation, "validation")
    if not names:
        raise InputError(f"'{folder}' has no finished run of zoo sweep with metrics", code="missing")
    better = [name for name in names if name != "loss"] or names
    return next((name for name in validation if name in better), better[0]), split


def ranking(rows: Sequence[Row]) -> tuple[str, str] | None:
    """Return the validation metric that ranks the runs, and its mode; None if they differ in it or in their data."""
    metrics = {(chosen.get("metric"), chosen.get("mode")) for chosen in map(chosen_by, rows)}
    seeds = {row["axes"].get("seed") for row in rows}
    data = {(row["axes"].get("seed"), str(row.get("data_sha256") or row["options"].get("data"))) for row in rows}
    metric, mode = metrics.pop()
    return (metric, mode) if metric and mode and not metrics and len(data) == len(seeds) else None


def collect(rows: Sequence[Row], metric: str, split: str) -> list[Group]:
    """Group the measured runs that differ only in their seed, in the order of the grid."""
    groups: dict[tuple[str, ...], Group] = {}
    for row in rows:
        chosen = chosen_by(row)
        value = row["metrics"].get(metric) if split == "test" else {chosen.get("metric"): chosen.get("value")}.get(metric)
        if value is None:
            continue
        axes = {axis: label for axis, label in row["axes"].items() if axis != "seed"}
        sizes = row["parameters"].get("total") or 0, row["parameters"].get("real_twin") or 0
        label = ", ".join(axes.values()) or "all"
        group = groups.setdefault(tuple(axes.values()), Group(label, axes, [], [], sizes))
        group.values.append(float(value))
        group.chosen.extend([chosen["value"]] if chosen else [])
    return list(groups.values())


def as_table(groups: Sequence[Group], metric: str, validation: str, best: Group | None) -> Table:
    """Tabulate the groups."""
    rows, axes = [], list(groups[0].axes)
    for group in groups:
        total, twin = group.parameters
        row = [*(group.axes.values() or [group.label]), str(len(group.values))]
        row.append(spread(group.values))
        row += [spread(group.chosen) if group.chosen else ""] if validation != metric else []
        rows.append([*row, f"{total:,}", f"{total / twin:.1%}" if twin else "", "best" if group is best else ""])
    figures = [metric] if validation == metric else [metric, validation]
    return Table(
        "Runs", [*(axes or [""]), "runs", *figures, "parameters", "relative to real", f"by {validation}" if best else ""], rows
    )


def spread(values: Sequence[float]) -> str:
    """Format the mean and the standard deviation of values."""
    return plus_minus(mean(values), stdev(values) if len(values) > 1 else None)


def draw(groups: Sequence[Group], axis: str, title: str) -> Figure:
    """Draw every run as a dot and every mean as a diamond, by group and against the parameters."""
    figure = Figure(figsize=(10, 1.6 + 0.32 * max(6, len(groups))), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    colors: dict[str, str] = {}  # by the label of the first axis
    for height, group in enumerate(groups):
        color = colors.setdefault(next(iter(group.axes.values()), ""), PALETTE[len(colors) % len(PALETTE)])
        values, center, size = group.values, mean(group.values), group.parameters[0]
        left.plot(values, [height] * len(values), "o", center, height, "D", color=color, alpha=0.55)
        right.plot([size] * len(values), values, "o", size, center, "D", color=color, alpha=0.55)
    left.set_yticks(range(len(groups)), [group.label for group in groups])
    left.invert_yaxis()
    left.set_xlabel(axis)
    plain_axes(left, "x")
    log_axis(right, "x")
    right.set_xlabel("trainable parameters")
    right.set_ylabel(axis)
    plain_axes(right)
    named = colors if 1 < len(colors) <= len(PALETTE) else {}
    handles = [Line2D([], [], ls="", marker="s", color=color, label=label) for label, color in named.items()]
    for marker, label in (("o", "run"), ("D", "mean")):
        handles.append(Line2D([], [], ls="", marker=marker, color="gray", label=label))
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure
