"""The report ``sweep``: the runs of a grid as a table, plots and one page; means over seeds, and the best by validation."""

import io
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from zoo.checkpoint.card import number
from zoo.checkpoint.sweep import RESULTS, read_rows
from zoo.errors import InputError, check_rules
from zoo.report import Report, plain_console, plain_table
from zoo_reports.lottery import plus_minus
from zoo_reports.page import Page, Table
from zoo_reports.plots import both
from zoo_reports.style import PALETTE, axis_title

SEED = "seed"
"""The axis that means and spreads are taken over."""
NOT_RANKED = (
    "Which is best by validation is not told: runs differ in their data or in what they are chosen by, or it is unknown."
)


class Group(NamedTuple):
    """The runs of a sweep that differ in their seed alone.

    Attributes:
        label: The labels of its axes.
        axes: The label by axis.
        values: The metric of each run on the test split.
        chosen: The figure of each run that validation chose its epoch by.
        parameters: Trainable parameters, and those of the same network over the reals.
        color: What it is drawn in, one for each label of the first axis.
    """

    label: str
    axes: dict[str, str]
    values: list[float]
    chosen: list[float]
    parameters: tuple[int, int]
    color: str

    @property
    def spread(self) -> float | None:
        """The sample standard deviation of the metric, None for one run."""
        return stdev(self.values) if len(self.values) > 1 else None


def sweep(runs: Sequence[str], *, metric: str = "") -> Report:
    """Runs of a grid: test metric, spread over seeds, parameters, best by validation (png, svg, html, md).

    Args:
        runs: One folder that ``zoo sweep`` wrote.
        metric: The metric of the test split to show, or of validation if there is no test split; by default the one that
            epochs were chosen by, or else the first.

    Raises:
        InputError: If the folder is none of a sweep, has no finished run, or the metric is not measured.
    """
    check_rules((len(runs) == 1, "sweep reports on one folder: give one"))
    folder = Path(runs[0]).expanduser()
    if not (folder / RESULTS).is_file():
        raise InputError(f"'{folder}' has no {RESULTS}: give the folder of a sweep in which a run is finished")
    rows = read_rows(folder / RESULTS)
    check_rules((bool(rows), f"no run of '{folder}' is finished yet"))
    metric, split = measured(rows, metric, folder)
    ranked = figure_of(rows)
    groups = collect(rows, metric, split)
    best = best_of(groups, ranked[1]) if ranked else None
    table = as_table(groups, f"{split} {metric}", f"validation {ranked[0]}" if ranked else "validation", best)
    title, axis = f"{folder.name}: {axis_title(metric, split)}", axis_title(metric, split)
    seeds = {len(group.values) for group in groups}
    many = str(*seeds) if len(seeds) == 1 else "as many as it says"
    left = len(rows) - sum(len(group.values) for group in groups)
    notes = [
        f"Mean ± sample standard deviation over the runs of each row ({many}).",
        f"Best in validation ({ranked[0]}): {best.label}." if best and ranked else NOT_RANKED,
        *([f"{left} of {len(rows)} runs have not measured it and are not here."] if left else []),
    ]
    files = both("sweep", lambda: picture(groups, axis, title))
    page = Page(title, notes[0], notes[1:], {title: files["sweep.svg"]}, [table])
    files |= {"sweep.md": page.as_markdown(), "sweep.html": page.as_html()}
    values = {"metric": metric, "best": best.axes if best else None, "groups": [group._asdict() for group in groups]}
    return Report(values, as_text(title, table, notes), files)


def measured(rows: Sequence[dict[str, Any]], metric: str, folder: Path) -> tuple[str, str]:
    """Return the metric to show, and its split: validation if no run has measured anything on a test split."""
    seen = dict.fromkeys(found[0] for row in rows if (found := chosen_by(row)))
    tested = (name for row in rows for name, value in row["metrics"].items() if isinstance(value, int | float))
    names, split = list(dict.fromkeys(tested)), "test"
    if not names:
        names, split = list(seen), "validation"
    if not names:
        raise InputError(f"no run in '{folder}' has measured anything")
    if metric and metric not in names:
        raise InputError(f"the runs in '{folder}' have not measured {metric}: use {' or '.join(names)}")
    better = [name for name in names if name != "loss"]
    return metric or next((name for name in seen if name in better), (better or names)[0]), split


def chosen_by(row: dict[str, Any]) -> tuple[str, str] | None:
    """Return the figure of validation that chose the epoch of a run, and whether it is to be high (``max``)."""
    found = row.get("validation") or {}
    return None if found.get("value") is None else (str(found.get("metric") or "loss"), str(found.get("mode") or "min"))


def figure_of(rows: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Return the figure of validation by which runs can be compared; None if they differ in it, or in their data."""
    figures = {chosen_by(row) for row in rows}
    seeds = {row["axes"].get(SEED) for row in rows}
    data = {(row["axes"].get(SEED), str(row.get("data_sha256") or row["options"].get("data"))) for row in rows}
    return figures.pop() if len(figures) == 1 and len(data) == len(seeds) else None


def collect(rows: Sequence[dict[str, Any]], metric: str, split: str) -> list[Group]:
    """Gather the runs that differ in their seed alone, in the order of the grid, if they have measured the metric."""
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if isinstance(figure(row, metric, split), int | float):
            found.setdefault(tuple(f"{axis}\t{label}" for axis, label in row["axes"].items() if axis != SEED), []).append(row)
    colors: dict[str, str] = {}
    groups = []
    for place, mine in found.items():
        axes = dict(text.split("\t", 1) for text in place)
        head = next(iter(axes.values()), "")
        color = colors.setdefault(head, PALETTE[len(colors) % len(PALETTE)])
        validation = [(row.get("validation") or {}).get("value") for row in mine]
        chosen = [value for value in validation if value is not None]
        counts = mine[0]["parameters"]
        numbers = (int(counts.get("total") or 0), int(counts.get("real_twin") or 0))
        values = [float(figure(row, metric, split)) for row in mine]
        groups.append(Group(", ".join(axes.values()) or "all", axes, values, chosen, numbers, color))
    return groups


def figure(row: dict[str, Any], metric: str, split: str) -> Any:
    """Return a figure of a run, None if it was not measured."""
    if split == "test":
        return row["metrics"].get(metric)
    return row["validation"]["value"] if (found := chosen_by(row)) and found[0] == metric else None


def best_of(groups: Sequence[Group], mode: str) -> Group | None:
    """Return the group whose mean in validation is best, if all runs have a figure there."""
    if any(len(group.chosen) < len(group.values) for group in groups):
        return None
    return (max if mode == "max" else min)(groups, key=lambda group: mean(group.chosen))


def as_table(groups: Sequence[Group], metric: str, known: str, best: Group | None) -> Table:
    """Tabulate the groups."""
    axes = list(groups[0].axes)
    rows = []
    for group in groups:
        total, twin = group.parameters
        row = [*group.axes.values()] if axes else [group.label]
        row += [str(len(group.values)), plus_minus(mean(group.values), group.spread)]
        row += [number(mean(group.chosen)) if group.chosen else ""] if known != metric else []
        rows.append([*row, f"{total:,}", f"{total / twin:.1%}" if twin else "", "best" if group is best else ""])
    figures = [metric] if known == metric else [metric, known]
    return Table("Runs", [*(axes or [""]), "runs", *figures, "parameters", "of the real", ""], rows)


def as_text(title: str, table: Table, notes: Sequence[str]) -> str:
    """Write the table for the terminal."""
    _, head, rows = table
    view = plain_table(head[0], *head[1:])
    for row in rows:
        view.add_row(*row)
    console = plain_console(file=io.StringIO())
    console.print(f"\n{title}\n")
    console.print(view)
    console.print("\n".join(notes))
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]


def picture(groups: Sequence[Group], axis: str, title: str) -> Any:
    """Draw every run as a dot and every mean as a line, by group and against the parameters."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator

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
    left.grid(axis="x", color="#e9e9e9")
    right.set_xscale("log")
    right.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for kind in (right.xaxis.set_major_formatter, right.xaxis.set_minor_formatter):
        kind(EngFormatter(sep=""))
    right.set_xlabel("trainable parameters")
    right.set_ylabel(axis)
    right.grid(color="#e9e9e9")
    for axes in (left, right):
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure
