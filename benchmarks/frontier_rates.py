"""Show how the best learning rate moves with width and algebra, before and after scaling: a section of docs/frontier.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from zoo_experiments.frontier import best_rate
from zoo_reports.style import colors_of

Rows = Sequence[Mapping[str, Any]]

STYLES = (":", "-.", "--", "-")
"""Of the widths of an algebra, the widest last; further ones share the first."""
TEXT = """## One learning rate for every width and algebra

Over the reals an update of Adam moves the outputs of a layer in proportion to its fan-in; over an algebra with a signed table,
in proportion to fan-in / sqrt(n) (derived in `zoo.tasks.optimization.mup_scales`). `--optimizer.mup_base_width 64` divides the
learning rate of each matrix by this factor, relative to a real matrix of fan-in 64; embeddings and norms keep the rate. Below,
the networks of `shakespeare` with one rate for all parameters, and with scaled rates; one seed.

![validation loss against the learning rate, before and after scaling](images/frontier_rates.png)

| network | best rate | loss | best scaled rate | loss |
|---|---:|---:|---:|---:|"""


def curves(config: Mapping[str, Any], rows: Rows) -> dict[str, dict[float, float]]:
    """Return the validation loss by learning rate for each network, of the seed that searched the rates."""
    seed = config["axes"]["seed"][0]
    found = {
        net: {
            row["lr"]: row["validation"]
            for row in sorted(rows, key=lambda row: row["lr"])
            if (row["net"], row["seed"]) == (net, seed)
        }
        for net in config["axes"]["net"]
    }
    return {net: points for net, points in found.items() if points}


def draw(panels: Sequence[tuple[str, Mapping[str, Any], Rows]], path: Path) -> None:
    """Draw the validation loss against the rate, a panel for each title, configuration and rows."""
    figure = Figure(figsize=(9.6, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
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
    """Draw one line for each network, coloured by algebra and dashed by width."""
    nets, found = config["axes"]["net"], curves(config, rows)
    colors = colors_of(net["algebra"] for net in nets.values())
    for net, points in found.items():
        algebra = nets[net]["algebra"]
        widths = sorted(int(other.rpartition("-")[2]) for other in found if nets[other]["algebra"] == algebra)
        place = widths.index(int(net.rpartition("-")[2])) - len(widths)
        style = STYLES[max(place, -len(STYLES))]
        axes.plot(list(points), list(points.values()), style, color=colors[algebra], marker=".", linewidth=1.3, label=net)
    axes.set_xscale("log", base=2)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def best(config: Mapping[str, Any], rows: Rows) -> dict[str, float]:
    """Return the best rate of each network, of the seed that searched the rates."""
    seed, nets = config["axes"]["seed"][0], config["axes"]["net"]
    rates = {net: best_rate(row for row in rows if (row["net"], row["seed"]) == (net, seed)) for net in nets}
    return {net: rate for net, rate in rates.items() if rate}


def section(images: Path, before: tuple[Mapping[str, Any], Rows], after: tuple[Mapping[str, Any], Rows]) -> list[str]:
    """Write the section: how far the best rates lie apart, before and after scaling."""
    draw([("one rate for all parameters", *before), ("scaled by width and algebra", *after)], images / "frontier_rates.png")
    rates, losses = [best(*one) for one in (before, after)], [curves(*one) for one in (before, after)]
    nets = [net for net in rates[0] if net in rates[1]]
    table = [
        f"| {net} | "
        + " | ".join(f"{rate[net]:g} | {loss[net][rate[net]]:.3f}" for rate, loss in zip(rates, losses, strict=True))
        + " |"
        for net in nets
    ]
    spread = [max(rate[net] for net in nets) / min(rate[net] for net in nets) for rate in rates]
    # What one rate for all networks costs: the mean loss over networks, at the rate where it is lowest.
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
        f"The best rates lie within a factor of {spread[0]:g} before and {spread[1]:g} after scaling; the grid has steps of 2. "
        f"With one rate for all of these networks, {lr:g}, the loss is on average {cost:.4f} nats above that at the best rate "
        f"of each; with one scaled rate, {scaled_lr:g}, {scaled_cost:.4f} nats. At the best rate of each, scaling lowers the "
        f"loss by {gain:.4f} nats on average. `--optimizer.mup_base_width` is off by default.",
        "",
    ]
