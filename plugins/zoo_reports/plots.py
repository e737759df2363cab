"""The pictures of a lottery report."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import fill
from typing import Any, NamedTuple

from zoo_reports.rows import Curve, is_wide
from zoo_reports.style import MARKERS, axis_title, colors_of, log_axis, percent_text, plain_axes
from zoo_reports.weights import Layer, Ticket

DASHES = {None: "-", "random": "--", "reinit": ":"}
"""The line style of each control."""
MOST_ROUNDS = 5
"""Maximum number of rounds with histograms."""


class Style(NamedTuple):
    """How an arm is drawn: colour by algebra, dashes by control, and a marker of its own."""

    color: str
    dash: str
    marker: str


def styles(arms: Sequence[Curve]) -> dict[str, Style]:
    """Return the style of each arm by its label."""
    colors = colors_of(arm.algebra for arm in arms)
    return {
        arm.label: Style(colors[arm.algebra], DASHES[arm.control], mark)
        for arm, mark in zip(arms, cycle(MARKERS), strict=False)
    }


def curves(arms: Sequence[Curve], look: Mapping[str, Style], metric: str, split: str, title: str) -> Any:
    """Draw a metric against the remaining percent of the real network's weights: means, and spread over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.subplots()
    for arm in arms:
        style, thin = look[arm.label], [point for point in arm.points if point not in arm.complete]
        line: dict[str, Any] = {"color": style.color, "linewidth": 1.2 if arm.control else 1.8, "zorder": 3}
        line |= {"marker": style.marker, "markersize": 3.5 if arm.control else 4.5}
        percents, means = [point.percent for point in arm.points], [point.mean for point in arm.points]
        axes.plot(percents, means, linestyle=style.dash, label=arm.label, **line)
        hollow = line | {"linewidth": 0, "markerfacecolor": "white", "zorder": 4}
        axes.plot([point.percent for point in thin], [point.mean for point in thin], **hollow)
        low, high = ([point.mean + sign * (point.spread or 0.0) for point in arm.points] for sign in (-1, 1))
        has_spread = [point.spread is not None for point in arm.points]
        axes.fill_between(percents, low, high, where=has_spread, color=style.color, alpha=0.15, linewidth=0)
        if arm.dense is not None:
            axes.axhline(arm.dense, color=style.color, linewidth=0.7, linestyle=(0, (1, 2)), label=f"{arm.label}, dense")
    log_axis(axes, "x")
    if is_wide(arms):
        log_axis(axes, "y")
    axes.invert_xaxis()
    axes.set_xlabel("weights left, percent of the real network's prunable weights")
    axes.set_ylabel(axis_title(metric, split))
    plain_axes(axes)
    figure.suptitle(fill(title, 95), fontsize=11, x=0.02, ha="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8.5, handlelength=3.4)
    return figure


def histograms(rows: Sequence[tuple[str, Layer, str]], title: str) -> Any:
    """Draw histograms of surviving weights like Figures 4 and 6 of Mukhopadhyay et al. (2025).

    Args:
        rows: Name, layer and colour of each row; the columns are some of the rounds.
        title: The title.
    """
    from matplotlib.figure import Figure

    rounds = sorted({number for _, layer, _ in rows for number in layer.counts})
    if len(rounds) > MOST_ROUNDS:
        rounds = [rounds[round(step * (len(rounds) - 1) / (MOST_ROUNDS - 1))] for step in range(MOST_ROUNDS)]
    figure = Figure(figsize=(2.1 * len(rounds) + 0.4, len(rows) + 0.9), layout="constrained")
    panels = figure.subplots(len(rows), len(rounds), squeeze=False)
    for (name, layer, color), line in zip(rows, panels, strict=True):
        line[0].set_ylabel(name.replace(", ", ",\n"), fontsize=7.5)
        for number, axes in zip(rounds, line, strict=True):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(labelsize=7)
            axes.set_yticks([])
            axes.locator_params(axis="x", nbins=3)
            axes.set_xlim(layer.edges[0], layer.edges[-1])
            if number in layer.counts:
                axes.stairs(layer.counts[number], layer.edges, fill=True, color=color)
                text = f"{layer.left[number]:,}\n{percent_text(100 * layer.left[number] / layer.numbers)}"
                axes.text(0.99, 1, text, transform=axes.transAxes, ha="right", va="top", fontsize=6.5)
    for number, axes in zip(rounds, panels[0], strict=True):
        axes.set_title(f"round {number}", fontsize=9)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
    figure.supxlabel("weight", fontsize=8.5)
    return figure


def sparsity(tickets: Mapping[str, Ticket], title: str) -> Any:
    """Draw the remaining share of each layer's weights against the round, a heat map for each arm."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    rounds = range(1 + max(max(ticket.rounds) for ticket in tickets.values()))
    most = max(len(ticket.layers) for ticket in tickets.values())
    figure = Figure(figsize=(4.6, len(tickets) * (0.8 + 0.16 * most)), layout="constrained")
    panels = figure.subplots(len(tickets), 1, squeeze=False).ravel()
    colors = colormaps["viridis_r"].with_extremes(bad="#d0d0d0")  # zero has no logarithm
    for (label, ticket), axes in zip(tickets.items(), panels, strict=True):
        image = axes.imshow(ticket.shares(rounds), norm=LogNorm(0.1, 100), cmap=colors, aspect="auto")
        axes.set_title(label, fontsize=9)
        names = list(ticket.layers)[1:]
        axes.set_yticks(range(len(names)), names, fontsize=6.5)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("round")
    bar = figure.colorbar(image, ax=list(panels), aspect=30)
    bar.set_label("percent of the layer's weights left (grey: none)", fontsize=8)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
    return figure
