"""The report ``lottery``: a metric against the weights left, the crossing points, and the weights that survive."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from zoo.errors import check_rules
from zoo.report import Report
from zoo_reports.crossing import METHOD, compare_all, crossing_table
from zoo_reports.page import Page, Table
from zoo_reports.plots import Style, curves, histograms, sparsity, styles
from zoo_reports.rows import Curve, LotteryRun, collect, gaps, lottery_metric, read_runs
from zoo_reports.style import axis_title, percent_text, pictures, plus_minus
from zoo_reports.weights import ALL, Ticket, read_ticket_weights


def lottery(runs: Sequence[str], *, split: str = "test", metric: str = "", mode: str = "") -> Report:
    """Lottery tickets: metric against weights left, crossing points, weights and sparsity per layer (png, svg, html, md).

    Args:
        runs: Folders of ``zoo lottery`` with the same metric and data.
        split: ``test`` or ``val``.
        metric: The metric to draw, such as perplexity; by default the one that selected the epochs.
        mode: Whether another metric is to be maximised (``max``) or minimised (``min``).

    Raises:
        InputError: If a folder is not a lottery run or has no rows yet, or the runs cannot be compared.
    """
    check_rules((split in ("val", "test"), f"lottery: split={split!r}: use val or test"))
    read = read_runs(runs)
    metric, mode = lottery_metric(read, metric, mode)
    arms = collect(read, split, metric)
    look = styles(arms)
    crossings, notes = compare_all(arms, mode)
    notes = gaps(read, arms) + notes
    tickets: dict[str, Ticket] = {}
    for arm in arms:
        ticket, problems = read_ticket_weights(arm)
        notes += problems
        if ticket:
            tickets[arm.label] = ticket
    title, about = describe_lottery(read, arms)
    files = pictures("lottery", lambda: curves(arms, look, metric, split, title)) | weight_files(tickets, look, title)
    tables = [crossing_table(crossings)] if crossings else []
    findings = [f"{crossing.statement}." for crossing in crossings] or ["No crossing point: no two arms can be compared."]
    values: dict[str, Any] = {"metric": metric, "mode": mode, "split": split}
    values |= {"crossings": [crossing._asdict() for crossing in crossings]}
    values |= {"arms": {arm.label: [point._asdict() for point in arm.points] for arm in arms}, "notes": notes}
    page = Page(title, about, findings, [*tables, rounds_table(arms, metric, split)], notes + [METHOD] * bool(crossings))
    return page.report("lottery", values, files)


def describe_lottery(runs: Sequence[LotteryRun], arms: Sequence[Curve]) -> tuple[str, str]:
    """Return the title of a report and the line under it."""
    backbones = list(dict.fromkeys(run.record["backbone"] for run in runs))
    counts = sorted({len(arm.seeds) for arm in arms})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    text = f"{seeds}; lines are means over seeds, bands one sample standard deviation. Validation chose the epochs."
    return f"Lottery tickets of {' and '.join(backbones)} on {runs[0].record['data']}", text


def weight_files(tickets: Mapping[str, Ticket], look: Mapping[str, Style], title: str) -> dict[str, bytes]:
    """Draw the weights of all arms together, of the layers of each arm, and the sparsity of each layer."""
    if not tickets:
        return {}
    rows = [(label, ticket.layers[ALL], look[label].color) for label, ticket in tickets.items()]
    files = pictures("weights", lambda: histograms(rows, f"Surviving weights. {title}"))
    files |= pictures("sparsity", lambda: sparsity(tickets, "Weights left in each layer"))
    for label, ticket in tickets.items():
        layers = [(part, layer, look[label].color) for part, layer in ticket.layers.items() if part != ALL]
        name = re.sub(r"[^\w-]+", "-", label).strip("-")
        files |= pictures(f"weights-{name}", partial(histograms, layers, f"Surviving weights of each layer, {label}"))
    return files


def rounds_table(arms: Sequence[Curve], metric: str, split: str) -> Table:
    """Tabulate all rounds of all arms."""
    rows = []
    for arm in arms:
        for point in arm.points:
            sizes = percent_text(point.percent), f"{round(point.survivors):,}", str(len(point.seeds))
            rows.append((arm.label, str(point.round), *sizes, plus_minus(point.mean, point.spread)))
    head = ("arm", "round", "of the real weights", "weights left", "seeds", axis_title(metric, split))
    return Table("Rounds", head, rows)
