"""The report ``frontier``: networks over an algebra against real networks of the same number of weights.

A comparison is a weighted sum of mean test metrics (`zoo_reports.statistics`): the network over an algebra has weight 1, and
the real networks on both sides of its size share -1 by the position of its size between theirs on a logarithmic axis.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.figure import Figure
from zoo_experiments.frontier import best_rate
from zoo_experiments.sweep import merged, nested

from zoo.checkpoint.manifest import read_json
from zoo.errors import InputError
from zoo.reports import Report
from zoo_reports.page import MARKERS, Page, Table, colors_of, log_axis, pictures, plain_axes
from zoo_reports.statistics import Difference, Score, contrast

SHARE = 0.2
"""If word tables hold more than this share of the weights of some network, sizes are compared without them."""
MARGIN = 0.05
"""How far a network may lie beyond the real sizes, relative to its weights, to be compared with the outermost real network."""
UNITS = {"loss": ", nats", "mse": ", mean squared error"}
COSTS = {
    "bytes": ("bytes", "bytes of the weights file", ",.0f"),
    "int8_bytes": ("int8 bytes", "bytes of the ONNX file with int8 weights", ",.0f"),
    "multiply_adds": ("multiply-adds", "multiply-adds of an inference, per example", ",.0f"),
    "step_ms": ("ms/step", "milliseconds of a training step", ",.1f"),
    "inference_ms": ("ms/inference", "milliseconds of the inference of a batch", ",.1f"),
}
"""The title of the column, of the axis, and the format of each cost of `zoo_experiments.frontier.costs`."""


@dataclass(frozen=True, kw_only=True)
class BestNetwork(Score):
    """A network at its best learning rate by validation, of the ``rates`` that were tried, with a test metric for each seed.

    ``weights`` are the trainable parameters that the comparison counts, ``total`` are all of them; ``seconds`` is the mean
    training time.
    """

    net: str
    algebra: str
    weights: int
    total: int
    lr: float = 0.0
    rates: tuple[float, ...] = ()
    seconds: float = 0.0


def opponents(weights: int, real: Iterable[BestNetwork]) -> dict[BestNetwork, float] | None:
    """Return the coefficients of the real networks that interpolate at a size; None outside their sizes and `MARGIN`."""
    ordered = sorted(real, key=lambda point: point.weights)
    for small, large in pairwise(ordered):
        if small.weights <= weights <= large.weights:
            share = math.log(weights / small.weights) / math.log(large.weights / small.weights)
            return {small: 1 - share, large: share}
    for end in (ordered[0], ordered[-1]) if ordered else ():
        if abs(math.log(weights / end.weights)) <= math.log(1 + MARGIN):
            return {end: 1.0}
    return None


def mean_difference(pairs: Iterable[tuple[BestNetwork, Mapping[BestNetwork, float]]], lower: bool) -> Difference | None:
    """Compare the mean of networks with several seeds with their opponents; ``lower`` says that a lower metric is better."""
    pairs = [(point, others) for point, others in pairs if len(point.values) > 1]
    sign = (-1 if lower else 1) / max(len(pairs), 1)
    coefficients: dict[BestNetwork, float] = {}
    for point, others in pairs:
        coefficients[point] = coefficients.get(point, 0.0) + sign
        for other, share in others.items():
            coefficients[other] = coefficients.get(other, 0.0) - sign * share
    return contrast(coefficients) if pairs else None


def best_networks(rows: Iterable[Mapping[str, Any]]) -> list[BestNetwork]:
    """Return the networks of a frontier, smallest first, at the best of the rates for which most seeds are finished."""
    rows = list(rows)
    without = max((row["embedding"] / row["weights"] for row in rows), default=0.0) > SHARE
    networks = []
    for net in dict.fromkeys(row["net"] for row in rows):
        of_net = [row for row in rows if row["net"] == net]
        seeds = Counter(row["lr"] for row in of_net)
        lr = best_rate(row for row in of_net if seeds[row["lr"]] == max(seeds.values()))
        best = [row for row in of_net if row["lr"] == lr]
        total = of_net[0]["weights"]
        weights = total - (of_net[0]["embedding"] if without else 0)
        rates = tuple(sorted(rate for rate in seeds if rate))
        values, seconds = tuple(row["test"] for row in best if row["test"] is not None), mean(row["seconds"] for row in best)
        if not values:  # the metric is undefined
            continue
        tried = {"lr": lr or 0.0, "rates": rates, "seconds": seconds}
        networks.append(BestNetwork(values, net=net, algebra=of_net[0]["algebra"], weights=weights, total=total, **tried))
    return sorted(networks, key=lambda point: point.weights)


# --- the report ---


@dataclass(frozen=True)
class Frontier:
    """A measured task: its file, its finished runs (see `zoo_experiments.frontier.summarize`), and its networks by size.

    ``costs`` are those of the networks by name, see `zoo_experiments.frontier.costs`; empty if they were not measured.
    """

    name: str
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    points: list[BestNetwork]
    costs: dict[str, dict[str, float]]

    @property
    def shown_costs(self) -> dict[str, tuple[str, str, str]]:
        """Those of `COSTS` that every network has."""
        known = [self.costs.get(point.net, {}) for point in self.points]  # an interrupted frontier lacks those of new networks
        return {cost: how for cost, how in COSTS.items() if known and all(cost in costs for costs in known)}

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

    @property
    def size_effect(self) -> Difference | None:
        """Compare the largest real network with the smallest; where it is not better, equal weights say little."""
        return mean_difference([(self.real[-1], {self.real[0]: 1.0})], self.lower) if len(self.real) > 1 else None

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
    """Test metric against weights, and comparison at equal weights (png, svg, html, md)."""
    if len(runs) != 1:
        raise InputError("frontier is a report on one folder, got several")
    folder = Path(runs[0]).expanduser()
    stored = read_json(folder / "frontier.json")
    if not stored.get("rows"):
        raise InputError(f"no run of '{folder}' is finished yet", code="missing")
    rows = stored["rows"]
    measured = Frontier(folder.name, stored["config"], rows, best_networks(rows), stored.get("costs", {}))
    texts, table = sentences(measured), network_table(measured)
    about = "Every network at its best learning rate by validation; ± is a 95 % t-interval over seeds."
    page = Page(f"Quality at equal weights: {folder.name}", about, [text.replace("**", "") for text in texts], [table])
    files = pictures("frontier", lambda: draw(measured))
    files |= pictures("costs", lambda: draw_costs(measured)) if measured.shown_costs else {}
    return page.report("frontier", {"table": table.rows, "sentences": texts}, files)


def sentences(frontier: Frontier) -> list[str]:
    """Compare the algebras with real networks of the same number of weights, and the largest real network with the smallest."""
    texts = [sentence(frontier, algebra) for algebra in frontier.algebras]
    if effect := frontier.size_effect:
        names = f"{frontier.real[-1].net} against {frontier.real[0].net}, the largest against the smallest"
        texts.append(f"**real**: {effect.verdict}, {text_of(effect)} {frontier.metric} ({names}).")
    return texts


def sentence(frontier: Frontier, algebra: str) -> str:
    """Compare an algebra with real networks of the same number of weights in one sentence."""
    inside = [point for point in frontier.algebras[algebra] if opponents(point.weights, frontier.real)]
    if not (difference := frontier.equal_weights(algebra)):
        reason = "one seed" if inside else "no real networks around its sizes"
        return f"**{algebra}**: not compared at equal weights, {reason}."
    names = ", ".join(point.net for point in inside if len(point.values) > 1)
    return f"**{algebra}**: {difference.verdict} at equal weights, {text_of(difference)} {frontier.metric} ({names})."


def text_of(difference: Difference) -> str:
    """Format a difference with its interval."""
    digits = 4 if max(abs(difference.low), abs(difference.high)) < 0.1 else 3
    return f"{difference.estimate:+.{digits}f} [{difference.low:+.{digits}f}, {difference.high:+.{digits}f}]"


def draw(frontier: Frontier) -> Figure:
    """Draw the test metric against weights."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    draw_lines(frontier, axes, {point.net: point.weights for point in frontier.points})
    axes.set_xlabel(f"weights{'' if frontier.counts_all else ' without word embeddings'}")
    axes.legend(frameon=False)
    return figure


def draw_costs(frontier: Frontier) -> Figure:
    """Draw the test metric against each cost, in a panel each."""
    rows = -(-len(frontier.shown_costs) // 2)
    figure = Figure(figsize=(9.6, 3.6 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, sharey=True, squeeze=False)
    for axes, (cost, (_, title, _)) in zip(panels.flat, frontier.shown_costs.items(), strict=False):
        draw_lines(frontier, axes, {point.net: frontier.costs[point.net][cost] for point in frontier.points})
        axes.set_xlabel(title)
    for axes in panels[:, 1]:
        axes.set_ylabel("")
    for axes in panels.flat[len(frontier.shown_costs) :]:
        axes.set_visible(False)
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
        base, net = frontier.config.get("base") or {}, frontier.config["axes"]["net"][point.net]
        options = merged(nested(base), nested(net)).get("optimizer", {})
        rate = f"{float(options['lr']):g}" if "lr" in options else "default"
        if point.rates:
            edge = " (edge)" if len(point.rates) > 1 and point.lr in (point.rates[0], point.rates[-1]) else ""
            rate = f"{point.lr:g} of {point.rates[0]:g} to {point.rates[-1]:g}{edge}"
        sizes = [f"{point.weights:,}", *([f"{1 - point.weights / point.total:.0%}"] if share else [])]
        costs = [format(frontier.costs[point.net][cost], digits) for cost, (_, _, digits) in frontier.shown_costs.items()]
        figures = [f"{point.mean:.4f}{half}", str(len(point.values)), f"{point.seconds:.0f}"]
        rows.append([point.net, *sizes, rate, *figures, *costs])
    head = ["network", "weights", *(["in word embeddings"] if share else []), "learning rate", f"test {frontier.metric}"]
    head += ["seeds", "s/run", *(title for title, _, _ in frontier.shown_costs.values())]
    return Table("Networks", head, rows)
