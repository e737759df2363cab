"""Show how the best learning rate depends on width and algebra, without and with scaling: a section of docs/frontier.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from zoo_experiments.frontier import best_rate
from zoo_reports.page import colors_of, plain_axes

Rows = Sequence[Mapping[str, Any]]

STYLES = (":", "-.", "--", "-")
"""Line styles of the widths of an algebra, the widest last; if there are more widths, the narrowest share the first style."""
TEXT = """## One learning rate for every width and algebra

Over the reals, an update of Adam changes the outputs of a layer in proportion to its fan-in; over an algebra with a signed
table, in proportion to fan-in / sqrt(n) (derived in `zoo.tasks.optimization.mup_scales`). `--optimizer.mup_base_width 64`
divides the learning rate of each matrix by this factor, relative to a real matrix of fan-in 64; the rate of embeddings and
norms does not change. The table compares the networks of `shakespeare` with one rate for all parameters and with scaled rates,
for one seed.

![validation loss against the learning rate, without and with scaling](images/frontier_rates.png)

| network | best rate | loss | best scaled rate | loss |
|---|---:|---:|---:|---:|"""


def curves(config: Mapping[str, Any], rows: Rows) -> dict[str, dict[float, float]]:
    """Return the validation loss by learning rate for each network, for the seed that searched the rates."""
    seed = config["axes"]["seed"][0]
    by_rate = sorted((row for row in rows if row["seed"] == seed), key=lambda row: row["lr"])
    losses = {net: {row["lr"]: row["validation"] for row in by_rate if row["net"] == net} for net in config["axes"]["net"]}
    return {net: points for net, points in losses.items() if points}


def draw(panels: Sequence[tuple[str, Mapping[str, Any], Rows]], path: Path) -> None:
    """Plot the validation loss against the learning rate, with one panel for each (title, configuration, rows)."""
    figure = Figure(figsize=(9.6, 4.2), dpi=120, layout="constrained")
    lowest = min(loss for _, config, rows in panels for points in curves(config, rows).values() for loss in points.values())
    for axes, (title, config, rows) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        lines(axes, config, rows)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("learning rate")
        axes.set_ylim(lowest - 0.02, lowest + 0.3)
    figure.axes[0].set_ylabel("validation loss, nats")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Software": None})


def lines(axes: Axes, config: Mapping[str, Any], rows: Rows) -> None:
    """Draw one line per network, colored by algebra and dashed by width."""
    nets, losses = config["axes"]["net"], curves(config, rows)
    colors = colors_of(net["algebra"] for net in nets.values())
    for net, points in losses.items():
        algebra = nets[net]["algebra"]
        widths = sorted(int(other.rpartition("-")[2]) for other in losses if nets[other]["algebra"] == algebra)
        index = widths.index(int(net.rpartition("-")[2])) - len(widths)
        style = STYLES[max(index, -len(STYLES))]
        axes.plot(list(points), list(points.values()), style, color=colors[algebra], marker=".", linewidth=1.3, label=net)
    axes.set_xscale("log", base=2)
    plain_axes(axes)


def best(config: Mapping[str, Any], rows: Rows) -> dict[str, float]:
    """Return the best rate of each network, for the seed that searched the rates."""
    seed, nets = config["axes"]["seed"][0], config["axes"]["net"]
    rates = {net: best_rate(row for row in rows if (row["net"], row["seed"]) == (net, seed)) for net in nets}
    return {net: rate for net, rate in rates.items() if rate}


def section(images: Path, before: tuple[Mapping[str, Any], Rows], after: tuple[Mapping[str, Any], Rows]) -> list[str]:
    """Write the section with the best rates and the cost of sharing one rate, without and with scaling."""
    draw([("one rate for all parameters", *before), ("scaled by width and algebra", *after)], images / "frontier_rates.png")
    rates, losses = [best(*part) for part in (before, after)], [curves(*part) for part in (before, after)]
    nets = [net for net in rates[0] if net in rates[1]]
    table = [
        f"| {net} | "
        + " | ".join(f"{rate[net]:g} | {loss[net][rate[net]]:.3f}" for rate, loss in zip(rates, losses, strict=True))
        + " |"
        for net in nets
    ]
    spread = [max(rate[net] for net in nets) / min(rate[net] for net in nets) for rate in rates]
    # The cost of one rate for all networks: the mean increase of their losses, at the rate where it is lowest.
    costs = []
    for rate, loss in zip(rates, losses, strict=True):
        shared = set.intersection(*(set(loss[net]) for net in nets))
        costs.append(min((sum(loss[net][lr] - loss[net][rate[net]] for net in nets) / len(nets), lr) for lr in shared))
    (cost, lr), (scaled_cost, scaled_lr) = costs
    gain = sum(losses[0][net][rates[0][net]] - losses[1][net][rates[1][net]] for net in nets) / len(nets)
    return [
        *TEXT.splitlines(),
        *table,
        "",
        f"The best rates are within a factor of {spread[0]:g} without and {spread[1]:g} with scaling; the grid has steps of a "
        f"factor of 2. If all networks share the rate {lr:g}, their loss is on average {cost:.4f} nats higher than at their "
        f"own best rates; if they share the scaled rate {scaled_lr:g}, {scaled_cost:.4f} nats. At the best rates, scaling "
        f"{'lowers' if gain >= 0 else 'raises'} the loss by {abs(gain):.4f} nats on average. "
        "`--optimizer.mup_base_width` is off by default.",
        "",
    ]
