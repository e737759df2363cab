"""The pictures of a lottery report, as PNG and SVG."""

import io
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any
from warnings import catch_warnings, filterwarnings

from zoo_reports.rows import Arm, Point, is_wide
from zoo_reports.style import (
    PERCENT_TITLE,
    Style,
    axis_title,
    chosen,
    log_ticks,
    percent_text,
)
from zoo_reports.weights import ALL, Layer, Ticket


def both(name: str, draw: Callable[[], Any]) -> dict[str, bytes]:
    """Draw a picture and return it as PNG and SVG, the same bytes every time."""
    from matplotlib import rc_context

    files = {}
    with (
        catch_warnings(),
        rc_context({"svg.hashsalt": name, "font.size": 9, "axes.linewidth": 0.6, "axes.edgecolor": "#888888"}),
    ):
        filterwarnings("ignore", "Glyph", UserWarning)  # of a data set's name, say; the page shows it
        figure = draw()
        for kind, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
            picture = io.BytesIO()
            figure.savefig(picture, format=kind, **options)
            files[f"{name}.{kind}"] = picture.getvalue()
    return files


def curves(arms: Sequence[Arm], look: Mapping[str, Style], metric: str, split: str, title: str) -> Any:
    """Draw a metric against the percent of the real network's weights that is left: means, and spread over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    percents = [point.percent for arm in arms for point in arm.points]
    means = [point.mean for arm in arms for point in arm.points]
    if is_wide(arms):
        values = log_ticks(min(means), max(means))
        axes.set_yscale("log")
        axes.set_yticks(values, [f"{value:g}" for value in values])
        axes.set_yticks([], minor=True)
    for arm in arms:
        style = look[arm.label]
        line: dict[str, Any] = {"color": style.color, "linewidth": 1.2 if arm.control else 1.8, "zorder": 3}
        line |= {"marker": style.marker, "markersize": 3.5 if arm.control else 4.5}
        axes.plot(*_xy(arm.points), linestyle=style.dash, label=arm.label, **line)
        thin = [point for point in arm.points if point not in arm.complete]
        axes.plot(*_xy(thin), **line | {"linewidth": 0, "markerfacecolor": "white", "zorder": 4})
        spread = [point for point in arm.points if point.spread is not None]
        low, high = ([p.mean + sign * (p.spread or 0.0) for p in spread] for sign in (-1, 1))
        axes.fill_between([p.percent for p in spread], low, high, color=style.color, alpha=0.15, linewidth=0)
        if arm.dense is not None:
            axes.axhline(arm.dense, color=style.color, linewidth=0.7, linestyle=(0, (1, 2)), label=f"{arm.label}, dense")
    ticks = log_ticks(min(percents), max(percents))
    axes.set_xlim(max(percents) * 1.15, min(percents) / 1.15)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(PERCENT_TITLE)
    axes.set_ylabel(axis_title(metric, split), parse_math=False)
    axes.grid(True, color="#e6e6e6", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(fill(title, 95), fontsize=11, x=0.02, ha="left", parse_math=False)
    _legend(figure, axes)
    return figure


def _xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.percent for point in points], [point.mean for point in points]


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5, handlelength=3.4)
    for text in legend.get_texts():
        text.set_parse_math(False)


def histograms(rows: Sequence[tuple[str, Layer, str]], title: str) -> Any:
    """Draw histograms of surviving weights: a row for each name, layer and colour, a column for each of some rounds.

    As Figures 4 and 6 of Mukhopadhyay et al. (2025).
    """
    from matplotlib.figure import Figure

    rounds = chosen(sorted({number for _, layer, _ in rows for number in layer.counts}))
    figure = Figure(figsize=(2.1 * len(rounds) + 0.4, 1.35 * len(rows) + 0.9), layout="constrained")
    panels = figure.subplots(len(rows), len(rounds), squeeze=False)
    for (name, layer, color), line in zip(rows, panels, strict=True):
        for number, axes in zip(rounds, line, strict=True):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.set_yticks([])
            axes.tick_params(labelsize=7, color="#888888")
            axes.set_xlim(layer.edges[0], layer.edges[-1])
            axes.locator_params(axis="x", nbins=3)
            if number not in layer.counts:
                axes.spines["bottom"].set_visible(False)
                axes.set_xticks([])
                continue
            axes.stairs(layer.counts[number], layer.edges, fill=True, color=color)
            axes.set_ylim(0, 1.3 * (max(layer.counts[number]) or 1))
            left = layer.left[number]
            text = f"{left:,}\n{percent_text(100 * left / layer.numbers)}"
            axes.text(0.99, 1, text, transform=axes.transAxes, ha="right", va="top", fontsize=6.5, color="#555555")
        line[0].set_ylabel(name.replace(", ", ",\n"), fontsize=7.5, parse_math=False)
    for number, axes in zip(rounds, panels[0], strict=True):
        axes.set_title(f"round {number}", fontsize=9)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left", parse_math=False)
    figure.supxlabel("weight", fontsize=8.5)
    return figure


def ridges(ticket: Ticket, color: str, title: str) -> Any:
    """Draw histograms of the surviving weights of every layer, one above the other, a column for each of some rounds.

    Each is as high as its own greatest bin; the axis of weights is the same for all.
    """
    from matplotlib.figure import Figure

    layers = {name: layer for name, layer in ticket.layers.items() if name != ALL}
    rounds = chosen(ticket.rounds)
    figure = Figure(figsize=(2.0 * len(rounds) + 1.6, 0.32 * len(layers) + 1.1), layout="constrained")
    panels = figure.subplots(1, len(rounds), sharex=True, sharey=True, squeeze=False)[0]
    for number, axes in zip(rounds, panels, strict=True):
        axes.set_title(f"round {number}", fontsize=9)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(labelsize=7, color="#888888", left=False)
        for row, layer in enumerate(layers.values()):
            top = max(layer.counts[number]) or 1
            heights = [row + 0.45 - 0.9 * count / top for count in layer.counts[number]]
            axes.stairs(heights, layer.edges, baseline=row + 0.45, fill=True, color=color, linewidth=0)
            axes.axhline(row + 0.45, color="#dddddd", linewidth=0.4)
    panels[0].set_yticks(range(len(layers)), list(layers), fontsize=6.5)
    panels[0].set_ylim(len(layers) - 0.4, -0.6)
    panels[0].locator_params(axis="x", nbins=3)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left", parse_math=False)
    figure.supxlabel("weight", fontsize=8.5)
    return figure


def sparsity(tickets: Mapping[str, Ticket], title: str) -> Any:
    """Draw the share of each layer's weights that is left against the round, a heat map for each arm."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    most = max(len(ticket.layers) for ticket in tickets.values()) - 1
    wide = min(3, len(tickets))
    high = -(-len(tickets) // wide)
    figure = Figure(figsize=(2.2 + 2.8 * wide, 0.8 + high * (1.0 + 0.16 * most)), layout="constrained")
    panels = figure.subplots(high, wide, squeeze=False).ravel()
    for axes in panels[len(tickets) :]:
        axes.set_visible(False)
    rounds = range(1 + max(max(ticket.rounds) for ticket in tickets.values()))
    some = [share for ticket in tickets.values() for row in shares(ticket)[1] for share in row if share]
    norm = LogNorm(min([50.0, *some]), 100)
    colors = colormaps["viridis_r"].with_extremes(under="#d0d0d0", bad="white")
    mesh: Any = None
    for (label, ticket), axes in zip(tickets.items(), panels, strict=False):
        names, table = shares(ticket)
        columns = dict(zip(ticket.rounds, zip(*table, strict=True), strict=True))
        missing = (float("nan"),) * len(names)
        # None at all has no logarithm: a number below every other has the colour under the scale.
        cells = [[share if share != 0 else 1e-9 for share in columns.get(number, missing)] for number in rounds]
        mesh = axes.pcolormesh(list(zip(*cells, strict=True)), norm=norm, cmap=colors)
        axes.set_title(label, fontsize=9, parse_math=False)
        axes.set_xlabel("round")
        every = range(0, len(rounds), 1 + len(rounds) // 15)
        axes.set_xticks([number + 0.5 for number in every], [str(number) for number in every], fontsize=7)
        axes.spines[:].set_visible(False)
        axes.set_yticks([i + 0.5 for i in range(len(names))], names, fontsize=6.5)
        axes.tick_params(length=0)
        axes.invert_yaxis()
    ticks = log_ticks(norm.vmin or 1.0, 100)
    bar = figure.colorbar(mesh, ax=list(panels), ticks=ticks, aspect=30, pad=0.01)
    bar.ax.set_yticklabels([f"{tick:g}" for tick in ticks], fontsize=7)
    bar.ax.minorticks_off()
    bar.set_label("percent of the layer's weights left (grey: none)", fontsize=8)
    bar.outline.set_visible(False)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left", parse_math=False)
    return figure


def shares(ticket: Ticket) -> tuple[list[str], list[list[float]]]:
    """Return the layers of a ticket and, for each and each round, the percent of its weights that is left."""
    layers = {name: layer for name, layer in ticket.layers.items() if name != ALL}
    return list(layers), [[100 * layer.left[at] / layer.numbers for at in ticket.rounds] for layer in layers.values()]
