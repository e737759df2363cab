"""The report ``frontier``: networks over algebras against real networks of the same number of weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.checkpoint.manifest import read_json
from zoo.errors import check_rules
from zoo.report import Report
from zoo_reports.page import Page, Table
from zoo_reports.statistics import BestNetwork, Difference, best_networks, mean_difference, opponents
from zoo_reports.style import MARKERS, colors_of, log_axis, pictures, plain_axes

UNITS = {"loss": ", nats", "mse": ", mean squared error"}
COSTS = {
    "bytes": ("bytes", "bytes of the weights file", ",.0f"),
    "multiply_adds": ("multiply-adds", "multiply-adds of an inference, per example", ",.0f"),
    "step_ms": ("ms a step", "milliseconds of a training step", ",.1f"),
    "inference_ms": ("ms an inference", "milliseconds of the inference of a batch", ",.1f"),
}
"""The title of the column, of the axis, and the format of each cost of `zoo_experiments.frontier.costs`."""


@dataclass(frozen=True)
class Frontier:
    """A measured task.

    Attributes:
        name: Its name.
        config: The content of its file.
        rows: Its finished runs, see `zoo_experiments.frontier.summarize`.
        points: Its networks, smallest first.
        costs: Costs of the networks by name; empty if they were not measured.
    """

    name: str
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    points: list[BestNetwork]
    costs: dict[str, dict[str, float]]

    @property
    def metric(self) -> str:
        """The test metric."""
        return str(self.rows[0]["metric"])

    @property
    def lower(self) -> bool:
        """Whether a lower metric is better."""
        return bool(self.rows[0]["mode"] == "min")

    @property
    def counts_all(self) -> bool:
        """Whether the comparison includes the weights of word embeddings."""
        return all(point.weights == point.total for point in self.points)

    @property
    def real(self) -> list[BestNetwork]:
        """The real networks."""
        return [point for point in self.points if point.algebra == "real"]

    @property
    def algebras(self) -> dict[str, list[BestNetwork]]:
        """The other networks by algebra, in the order of the configuration."""
        names = dict.fromkeys(row["algebra"] for net in self.config["axes"]["net"] for row in self.rows if row["net"] == net)
        return {name: [point for point in self.points if point.algebra == name] for name in names if name != "real"}

    def equal_weights(self, algebra: str) -> Difference | None:
        """Compare an algebra with real networks of the same number of weights; None where there are none."""
        pairs = [(point, opponents(point.weights, self.real)) for point in self.algebras[algebra]]
        return mean_difference([(point, others) for point, others in pairs if others is not None], self.lower)

    def equal_width(self, algebra: str) -> Difference | None:
        """Compare an algebra with the real networks of the same backbones, where they have several seeds."""
        backbones = {name: net.get("backbone") for name, net in self.config["axes"]["net"].items()}
        real = {backbones[point.net]: point for point in self.real if len(point.values) > 1}
        nets = [point for point in self.algebras[algebra] if backbones[point.net] in real]
        return mean_difference([(point, {real[backbones[point.net]]: 1.0}) for point in nets], self.lower)


def frontier(runs: Sequence[str]) -> Report:
    """Test metric against weights, and comparison at equal weights (png, svg, html, md).

    Args:
        runs: One folder of ``zoo frontier``.

    Raises:
        InputError: If the folder has no frontier.json, or no run is finished yet.
    """
    check_rules((len(runs) == 1, "frontier is a report on one folder, got several"))
    folder = Path(runs[0]).expanduser()
    stored = read_json(folder / "frontier.json")
    check_rules((bool(stored.get("rows")), f"no run of '{folder}' is finished yet"), code="missing")
    config, rows = stored["config"], stored["rows"]
    measured = Frontier(folder.name, config, rows, best_networks(rows, int(config["axes"]["seed"][0])), stored.get("costs", {}))
    sentences, table = [sentence(measured, algebra) for algebra in measured.algebras], network_table(measured)
    about = "Every network at its best learning rate by validation; ± is a 95 % t-interval over seeds."
    page = Page(f"Quality at equal weights: {folder.name}", about, [text.replace("**", "") for text in sentences], [table])
    files = pictures("frontier", lambda: draw(measured))
    files |= pictures("costs", lambda: draw_costs(measured)) if measured.costs else {}
    return page.report("frontier", {"table": table.rows, "sentences": sentences}, files)


def sentence(frontier: Frontier, algebra: str) -> str:
    """Compare an algebra with real networks of the same number of weights in one sentence."""
    inside = [point for point in frontier.algebras[algebra] if opponents(point.weights, frontier.real)]
    difference = frontier.equal_weights(algebra)
    if difference is None:
        reason = "one seed" if inside else "no real networks around its sizes"
        return f"**{algebra}**: not compared at equal weights, {reason}."
    names = ", ".join(point.net for point in inside if len(point.values) > 1)
    return f"**{algebra}**: {difference.verdict} at equal weights, {text_of(difference)} {frontier.metric} ({names})."


def text_of(difference: Difference) -> str:
    """Format a difference with its interval."""
    digits = 4 if max(abs(difference.low), abs(difference.high)) < 0.1 else 3
    return f"{difference.estimate:+.{digits}f} [{difference.low:+.{digits}f}, {difference.high:+.{digits}f}]"


def draw(frontier: Frontier) -> Any:
    """Draw the test metric against weights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    draw_lines(frontier, axes, {point.net: point.weights for point in frontier.points})
    axes.set_xlabel(f"weights{'' if frontier.counts_all else ' outside of word tables'}")
    axes.legend(frameon=False)
    return figure


def draw_costs(frontier: Frontier) -> Any:
    """Draw the test metric against each cost, in a panel each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 7.2), layout="constrained")
    panels = figure.subplots(2, 2, sharey=True)
    for axes, (cost, (_, title, _)) in zip(panels.flat, COSTS.items(), strict=True):
        draw_lines(frontier, axes, {net: costs[cost] for net, costs in frontier.costs.items()})
        axes.set_xlabel(title)
    for axes in panels[:, 1]:
        axes.set_ylabel("")
    panels[0, 0].legend(frameon=False)
    return figure


def draw_lines(frontier: Frontier, axes: Any, costs: Mapping[str, float]) -> None:
    """Draw the test metric against one cost of each network, with error bars and a line for each algebra."""
    lines = {"real": frontier.real, **frontier.algebras}
    colors = colors_of(lines)
    for (algebra, nets), marker in zip(lines.items(), MARKERS * len(lines), strict=False):
        nets = sorted(nets, key=lambda point: costs[point.net])
        style: dict[str, Any] = {"color": colors[algebra], "marker": marker, "linewidth": 2.2 if algebra == "real" else 1.3}
        style |= {"markersize": 5, "capsize": 3, "elinewidth": 1, "yerr": [point.interval or 0.0 for point in nets]}
        axes.errorbar([costs[point.net] for point in nets], [point.mean for point in nets], label=algebra, **style)
    means = [point.mean for point in frontier.points]
    log_axis(axes, "x")
    if max(means) > 50 * min(means) > 0:
        log_axis(axes, "y")
    better = "lower" if frontier.lower else "higher"
    axes.set_ylabel(f"test {frontier.metric}{UNITS.get(frontier.metric, '')} ({better} is better)")
    plain_axes(axes)


def network_table(frontier: Frontier) -> Table:
    """Tabulate the networks."""
    rows, share = [], not frontier.counts_all
    for point in frontier.points:
        half = "" if point.interval is None else f" ± {point.interval:.4f}"
        options = frontier.config["base"].get("optimizer", {}) | frontier.config["axes"]["net"][point.net].get("optimizer", {})
        rate = f"{options['lr']:g}" if "lr" in options else "default"
        if point.rates:
            edge = " (edge)" if len(point.rates) > 1 and point.lr in (point.rates[0], point.rates[-1]) else ""
            rate = f"{point.lr:g} of {point.rates[0]:g} to {point.rates[-1]:g}{edge}"
        sizes = [f"{point.weights:,}", *([f"{1 - point.weights / point.total:.0%}"] if share else [])]
        costs = [format(frontier.costs[point.net][cost], digits) for cost, (_, _, digits) in COSTS.items() if frontier.costs]
        figures = [f"{point.mean:.4f}{half}", str(len(point.values)), f"{point.seconds:.0f}"]
        rows.append([point.net, *sizes, rate, *figures, *costs])
    head = ["network", "weights", *(["in word table"] if share else []), "best rate", f"test {frontier.metric}", "seeds"]
    return Table(
        "Networks", [*head, "seconds a run", *([title for title, _, _ in COSTS.values()] if frontier.costs else [])], rows
    )
