"""Show how the best learning rate moves with width and algebra: a section of docs/frontier.md."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from zoo_experiments.frontier import best_rate
from zoo_reports.style import colors_of

import zoo
from zoo.registry import Spec

PRESET_WIDTHS = {"gpt/micro": 128, "vit": 64}
"""The width of a backbone whose spec names none."""
STYLES = (":", "-.", "--", "-")
"""Of the widths of an algebra, the widest last; further ones share the first."""


def scale(net: Mapping[str, Any]) -> float:
    """Return width / sqrt(n) of a network: the factor by which an update of Adam moves outputs, see `mup_scales`."""
    spec = Spec.parse(net["backbone"])
    return float(spec.options.get("dim", PRESET_WIDTHS.get(spec.name, 0))) / math.sqrt(zoo.algebra(net["algebra"]).n)


def curves(config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return validation figures by learning rate for each network, of the seed that searched the rates."""
    seed = config["axes"]["seed"][0]
    return {
        net: sorted((row["lr"], row["validation"]) for row in rows if row["net"] == net and row["seed"] == seed)
        for net in config["axes"]["net"]
    }


def draw(config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw validation figures against the rate, and against the rate times width / sqrt(n)."""
    figure = Figure(figsize=(9.6, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    found = {net: points for net, points in curves(config, rows).items() if points}
    colors = colors_of(net["algebra"] for net in config["axes"]["net"].values())
    for net, points in found.items():
        algebra = config["axes"]["net"][net]["algebra"]
        widths = sorted(int(other.rpartition("-")[2]) for other in found if config["axes"]["net"][other]["algebra"] == algebra)
        place = widths.index(int(net.rpartition("-")[2])) - len(widths)
        style = STYLES[max(place, -len(STYLES))]
        for axes, factor in ((left, 1.0), (right, scale(config["axes"]["net"][net]))):
            x, y = [rate * factor for rate, _ in points], [value for _, value in points]
            axes.plot(x, y, style, color=colors[algebra], marker=".", linewidth=1.3, label=net)
    best = min(value for points in found.values() for _, value in points)
    left.set_ylim(best - 0.02, best + 0.3)
    left.set_ylabel("validation loss, nats")
    for axes, label in ((left, "learning rate"), (right, "learning rate x width / sqrt(n)")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel(label)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*right.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Software": None})


def section(config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], images: Path) -> list[str]:
    """Write the section: how far the best rates lie apart, before and after they are scaled."""
    draw(config, rows, images / "frontier_rates.png")
    seed, lines = config["axes"]["seed"][0], []
    best: dict[str, float] = {}
    for net in config["axes"]["net"]:
        if rate := best_rate(row for row in rows if (row["net"], row["seed"]) == (net, seed)):
            best[net] = rate
            factor = scale(config["axes"]["net"][net])
            lines.append(f"| {net} | {rate:g} | {factor:.1f} | {rate * factor:.3f} |")
    scaled = [rate * scale(config["axes"]["net"][net]) for net, rate in best.items()]
    middle = math.exp((math.log(max(scaled)) + math.log(min(scaled))) / 2)
    return [
        "## One learning rate for every width and algebra",
        "",
        "Over the reals an update of Adam moves the outputs of a layer in proportion to its fan-in; over an algebra with a",
        "signed table, in proportion to fan-in / sqrt(n) (derived in `zoo.tasks.optimization.mup_scales`). If that decides,",
        "the best rate times width / sqrt(n) is the same for every network. The runs of `shakespeare` above, one seed:",
        "",
        "![validation loss against the learning rate, before and after scaling](images/frontier_rates.png)",
        "",
        "| network | best rate | width / sqrt(n) | product |",
        "|---|---:|---:|---:|",
        *lines,
        "",
        f"The best rates lie within a factor of {max(best.values()) / min(best.values()):.3g}, the products within a factor of "
        f"{max(scaled) / min(scaled):.2g}: one constant, {middle:.2f}, gives every network a rate within a factor of "
        f"{math.sqrt(max(scaled) / min(scaled)):.2g} of its best; the grid itself has steps of 2. Here the rate of all "
        "parameters was changed. `--optimizer.mup_base_width` scales each matrix by its own fan-in and leaves embeddings and "
        "norms; it is off by default, and has not been measured.",
        "",
    ]
