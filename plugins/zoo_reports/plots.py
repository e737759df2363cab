"""The pictures of a lottery report."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any, NamedTuple

from zoo_reports.rows import Arm, Point, is_wide
from zoo_reports.style import PERCENT_TITLE, axis_title, colors_of, log_axis, log_ticks, percent_text, plain_axes
from zoo_reports.weights import ALL, Layer, Ticket

MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = {None: "-", "random": "--", "reinit": ":"}
"""The line style of each control."""


class Style(NamedTuple):
    """How an arm is drawn: colour by algebra, dashes by control, marker by algebra, run and control."""

    color: str
    dash: str
    marker: str


def styles(arms: Sequence[Arm]) -> dict[str, Style]:
    """Return the style of each arm by its label."""
    algebras = list(dict.fromkeys(arm.algebra for arm in arms))
    colors, seen = colors_of(algebras), dict[tuple[str, str | None], int]()
    look = {}
    for arm in arms:
        repeat = seen[arm.algebra, arm.control] = seen.get((arm.algebra, arm.control), -1) + 1
        step = list(DASHES).index(arm.control) if arm.control in DASHES else len(DASHES)  # a single point shows no dashes
        marker = MARKERS[(algebras.index(arm.algebra) + repeat + step) % len(MARKERS)]
        look[arm.label] = Style(colors[arm.algebra], DASHES.get(arm.control, "-."), marker)
    return look


def chosen(rounds: Sequence[int], most: int = 5) -> list[int]:
    """Choose rounds for a row of panels: the first, the last, and some between.

    >>> chosen(range(11))
    [0, 2, 5, 8, 10]
    """
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[round(step * (len(rounds) - 1) / (most - 1))] for step in range(most)]


def curves(arms: Sequence[Arm], look: Mapping[str, Style], metric: str, split: str, title: str) -> Any:
    """Draw a metric against the percent of the real network's weights that is left: means, and spread over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.subplots()
    percents = [point.percent for arm in arms for point in arm.points]
    if is_wide(arms):
        log_axis(axes, "y", [point.mean for arm in arms for point in arm.points])
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
    log_axis(axes, "x", percents)
    axes.invert_xaxis()
    axes.set_xlabel(PERCENT_TITLE)
    axes.set_ylabel(axis_title(metric, split), parse_math=False)
    plain_axes(axes)
    figure.suptitle(fill(title, 95), fontsize=11, x=0.02, ha="left", parse_math=False)
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5, handlelength=3.4)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _xy(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.percent for point in points], [point.mean for point in points]


def histograms(rows: Sequence[tuple[str, Layer, str]], title: str) -> Any:
    """Draw histograms of surviving weights like Figures 4 and 6 of Mukhopadhyay et al. (2025).

    Args:
        rows: Name, layer and colour of each row; the columns are some of the rounds.
        title: The title.
    """
    from matplotlib.figure import Figure

    rounds = chosen(sorted({number for _, layer, _ in rows for number in layer.counts}))
    figure = Figure(figsize=(2.1 * len(rounds) + 0.4, 1.35 * len(rows) + 0.9), layout="constrained")
    panels = figure.subplots(len(rows), len(rounds), squeeze=False)
    for (name, layer, color), line in zip(rows, panels, strict=True):
        for number, axes in zip(rounds, line, strict=True):
            _weight_axes(axes)
            axes.set_yticks([])
            axes.set_xlim(layer.edges[0], layer.edges[-1])
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
    return _titled(figure, panels[0], rounds, title)


def ridges(ticket: Ticket, color: str, title: str) -> Any:
    """Draw histograms of the surviving weights of every layer, stacked, with a column for each of some rounds.

    Each histogram is scaled to its highest bin; all share the axis of weights.
    """
    from matplotlib.figure import Figure

    layers = {name: layer for name, layer in ticket.layers.items() if name != ALL}
    rounds = chosen(ticket.rounds)
    figure = Figure(figsize=(2.0 * len(rounds) + 1.6, 0.32 * len(layers) + 1.1), layout="constrained")
    panels = figure.subplots(1, len(rounds), sharex=True, sharey=True, squeeze=False)[0]
    for number, axes in zip(rounds, panels, strict=True):
        _weight_axes(axes)
        for row, layer in enumerate(layers.values()):
            top = max(layer.counts[number]) or 1
            heights = [row + 0.45 - 0.9 * count / top for count in layer.counts[number]]
            axes.stairs(heights, layer.edges, baseline=row + 0.45, fill=True, color=color, linewidth=0)
            axes.axhline(row + 0.45, color="#dddddd", linewidth=0.4)
    panels[0].set_yticks(range(len(layers)), list(layers), fontsize=6.5)
    panels[0].set_ylim(len(layers) - 0.4, -0.6)
    return _titled(figure, panels, rounds, title)


def _weight_axes(axes: Any) -> None:
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(labelsize=7, color="#888888", left=False)
    axes.locator_params(axis="x", nbins=3)


def _titled(figure: Any, panels: Sequence[Any], rounds: Sequence[int], title: str) -> Any:
    for number, axes in zip(rounds, panels, strict=True):
        axes.set_title(f"round {number}", fontsize=9)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left", parse_math=False)
    figure.supxlabel("weight", fontsize=8.5)
    return figure


def sparsity(tickets: Mapping[str, Ticket], title: str) -> Any:
    """Draw the share of each layer's weights that is left against the round, a heat map for each arm."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    wide = min(3, len(tickets))
    high = -(-len(tickets) // wide)
    most = max(len(ticket.layers) for ticket in tickets.values()) - 1
    figure = Figure(figsize=(2.2 + 2.8 * wide, 0.8 + high * (1.0 + 0.16 * most)), layout="constrained")
    panels = figure.subplots(high, wide, squeeze=False).ravel()
    for axes in panels[len(tickets) :]:
        axes.set_visible(False)
    rounds = range(1 + max(max(ticket.rounds) for ticket in tickets.values()))
    shares = [ticket.shares(rounds) for ticket in tickets.values()]
    norm = LogNorm(min([50.0, *(share for table in shares for row in table for share in row if share > 0)]), 100)
    colors = colormaps["viridis_r"].with_extremes(under="#d0d0d0", bad="white")
    mesh: Any = None
    for (label, ticket), table, axes in zip(tickets.items(), shares, panels, strict=False):
        # Zero has no logarithm: a number below all others gets the colour under the scale.
        mesh = axes.pcolormesh([[share or 1e-9 for share in row] for row in table], norm=norm, cmap=colors)
        axes.set_title(label, fontsize=9, parse_math=False)
        axes.set_xlabel("round")
        ticks = range(0, len(rounds), 1 + len(rounds) // 15)
        axes.set_xticks([number + 0.5 for number in ticks], [str(number) for number in ticks], fontsize=7)
        axes.spines[:].set_visible(False)
        names = list(ticket.layers)[1:]
        axes.set_yticks([i + 0.5 for i in range(len(names))], names, fontsize=6.5)
        axes.tick_params(length=0)
        axes.invert_yaxis()
    percents = log_ticks(norm.vmin or 1.0, 100)
    bar = figure.colorbar(mesh, ax=list(panels), ticks=percents, aspect=30, pad=0.01)
    bar.ax.set_yticklabels([f"{percent:g}" for percent in percents], fontsize=7)
    bar.ax.minorticks_off()
    bar.set_label("percent of the layer's weights left (grey: none)", fontsize=8)
    bar.outline.set_visible(False)
    figure.suptitle(title, fontsize=10.5, x=0.01, ha="left", parse_math=False)
    return figure
