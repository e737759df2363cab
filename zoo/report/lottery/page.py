"""One page with the plots of a lottery report to hover over and to zoom, complete in itself: nothing is fetched."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from zoo.report.lottery.rows import Arm, is_wide
from zoo.report.lottery.style import PERCENT_TITLE, Style, axis_title, log_ticks
from zoo.report.lottery.weights import BINS, REACH, Ticket

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, head, and rows of texts."""


def page(
    arms: Sequence[Arm],
    tickets: Mapping[str, Ticket],
    look: Mapping[str, Style],
    *,
    metric: str,
    split: str,
    texts: Mapping[str, str],
    findings: Sequence[str],
    tables: Sequence[Table],
    notes: Sequence[str],
) -> bytes:
    """Write the page.

    Args:
        arms: The lines.
        tickets: The weights of arms, by label.
        look: The style of each arm, by label.
        metric: Name of the metric.
        split: ``val`` or ``test``.
        texts: ``title``, and ``about`` for the line under it.
        findings: Sentences under the first plot.
        tables: Tables at the end.
        notes: Sentences after them.
    """
    from plotly.offline import get_plotlyjs

    # Text of "<" could end the element that holds it.
    data = json.dumps(content(arms, tickets, look, metric, split), separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "title": escape(texts["title"]),
        "about": escape(texts["about"]),
        "findings": "".join(f"<li>{escape(text)}</li>" for text in findings).replace(" %", "\u00a0%"),
        "reach": f"Each axis reaches {REACH:g} % of the weights of every round; the few beyond it are not drawn.",
        "tables": "".join(map(as_html, tables)) + "".join(f'<p class="quiet">{escape(text)}</p>' for text in notes),
        "data": data,
        "plotly": get_plotlyjs(),
    }
    first, *rest = Path(__file__).with_name("page.html").read_text(encoding="utf-8").split("{{")
    filled = (parts[name] + text for name, _, text in (piece.partition("}}") for piece in rest))
    return (first + "".join(filled)).encode()


def as_html(table: Table) -> str:
    """Write a table."""
    title, head, rows = table
    line = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f'<h2>{escape(title)}</h2><div class="scroll"><table><tr>{line}</tr>{body}</table></div>'


def content(
    arms: Sequence[Arm], tickets: Mapping[str, Ticket], look: Mapping[str, Style], metric: str, split: str
) -> dict[str, Any]:
    """Return the numbers that the page plots."""
    percents = [point.percent for arm in arms for point in arm.points]
    means = [point.mean for arm in arms for point in arm.points]
    left = [100 * n / layer.numbers for t in tickets.values() for layer in t.layers.values() for n in layer.left.values() if n]
    return {
        "metric": metric.replace("_", " "),
        "xtitle": PERCENT_TITLE,
        "ytitle": axis_title(metric, split),
        "log": is_wide(arms),
        "yticks": log_ticks(min(means), max(means)) if is_wide(arms) else [],
        "range": [max(percents) * 1.15, min(percents) / 1.15],
        "ticks": log_ticks(min(percents), max(percents)),
        "shareticks": log_ticks(min([50.0, *left]), 100),
        "arms": [arm_content(arm, look[arm.label]) for arm in arms],
        "rounds": sorted({number for ticket in tickets.values() for number in ticket.rounds}),
        "layers": list(dict.fromkeys(name for ticket in tickets.values() for name in ticket.layers)),
        "tickets": [ticket_content(label, ticket, look[label]) for label, ticket in tickets.items()],
    }


def arm_content(arm: Arm, style: Style) -> dict[str, Any]:
    """Return the points of a line."""
    full = [point.round for point in arm.complete]
    points = [point._asdict() | {"seeds": len(point.seeds), "full": point.round in full} for point in arm.points]
    look = {"label": arm.label, "color": style.color, "dash": style.dash[1], "symbol": style.marker[1]}
    return look | {"dense": arm.dense, "points": points}


def ticket_content(label: str, ticket: Ticket, style: Style) -> dict[str, Any]:
    """Return the histograms of an arm."""
    layers = {
        name: {"reach": float(f"{layer.edges[-1]:.6g}"), "bins": BINS}
        | {"counts": layer.counts, "left": layer.left, "numbers": layer.numbers}
        for name, layer in ticket.layers.items()
    }
    names = list(layers)[1:]  # the first is all of them
    return {"label": label, "color": style.color, "rounds": ticket.rounds, "names": names, "layers": layers}
