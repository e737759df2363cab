"""The report ``lottery``: a metric against the weights left, the crossing points, and the weights that survive."""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from zoo.checkpoint.card import number
from zoo.errors import check_rules
from zoo.report import Report, plain_console, plain_table
from zoo_reports.crossing import METHOD, Crossing, compare_all
from zoo_reports.page import Page, Table
from zoo_reports.plots import both, curves, histograms, ridges, sparsity
from zoo_reports.rows import Arm, Run, collect, gaps, measured, read_runs
from zoo_reports.style import Style, axis_title, percent_text, styles
from zoo_reports.weights import ALL, Ticket, read_ticket

MOST_NOTES = 12
"""Lines on what is missing that the terminal gets."""


def lottery(runs: Sequence[str], *, split: str = "test", metric: str = "", mode: str = "") -> Report:
    """Lottery tickets: metric against weights left, crossing points, weights and sparsity per layer (png, svg, html, md).

    The epoch of each round was chosen on the validation split, so the test split decides nothing.

    Args:
        runs: Folders that ``zoo lottery`` wrote, of the same metric and data.
        split: ``test`` or ``val``.
        metric: The metric to draw, such as perplexity; by default the one that the runs have chosen their epochs by.
        mode: Whether another metric is to be high (``max``) or low (``min``).

    Raises:
        InputError: If a folder is no such run, has no rows yet, or the runs measure different things.
    """
    check_rules((split in ("val", "test"), f"lottery: split={split!r}: use val or test"))
    found = read_runs(runs)
    metric, mode = measured(found, metric, mode)
    arms = collect(found, split, metric)
    look = styles(arms)
    crossings, said = compare_all(arms, mode)
    said = gaps(found, arms) + said
    tickets: dict[str, Ticket] = {}
    for arm in arms:
        ticket, problems = read_ticket(arm)
        said += problems
        if ticket:
            tickets[arm.label] = ticket
    title, about = describe(found, arms)
    files = both("lottery", lambda: curves(arms, look, metric, split, title)) | weight_files(tickets, look, title)
    tables = [crossing_table(crossings)] if crossings else []
    tables.append(rounds_table(arms, metric, split))
    findings = [f"{one.statement}." for one in crossings] or ["No crossing point: no two arms can be compared."]
    notes = ([METHOD] if crossings else []) + said
    pictures = {name: content for name, content in files.items() if name.endswith(".svg")}
    page = Page(title, about, findings, pictures, tables, notes)
    files |= {"lottery.md": page.as_markdown(), "lottery.html": page.as_html()}
    values: dict[str, Any] = {"metric": metric, "mode": mode, "split": split, "crossings": [one._asdict() for one in crossings]}
    values["arms"] = {arm.label: [point._asdict() for point in arm.points] for arm in arms}
    return Report(values | {"notes": said}, as_text(title, arms, metric, split, findings, said), files)


def describe(runs: Sequence[Run], arms: Sequence[Arm]) -> tuple[str, str]:
    """Return the title of a report and the line under it."""
    data = runs[0].record["data"]
    backbones = list(dict.fromkeys(run.record["backbone"] for run in runs))
    counts = sorted({len(arm.seeds) for arm in arms})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' if counts[0] > 1 else ''}"
    text = f"{seeds}; lines are means over seeds, bands one sample standard deviation. "
    return f"Lottery tickets of {' and '.join(backbones)} on {data}", text + "The epoch of each round was chosen on validation."


def weight_files(tickets: Mapping[str, Ticket], look: Mapping[str, Style], title: str) -> dict[str, bytes]:
    """Draw the weights of all arms together, of the layers of each arm, and what is left of each layer."""
    if not tickets:
        return {}
    rows = [(label, ticket.layers[ALL], look[label].color) for label, ticket in tickets.items()]
    files = both("weights", lambda: histograms(rows, f"Surviving weights. {title}"))
    files |= both("sparsity", lambda: sparsity(tickets, "What is left of each layer"))
    for name, (label, ticket) in zip(file_names(list(tickets)), tickets.items(), strict=True):
        title = f"Surviving weights of each layer, {label}"
        files |= both(f"weights-{name}", partial(ridges, ticket, look[label].color, title))
    return files


def file_names(labels: Sequence[str]) -> list[str]:
    """Return a part of a file's name for each label, different on every file system.

    >>> file_names(["phm(n=4)", "quaternion, random masks", "PHM-n-4"])
    ['phm-n-4', 'quaternion-random-masks', 'PHM-n-4-2']
    """
    found: dict[str, str] = {}
    for label in labels:
        name = plain = "-".join("".join(char if char.isalnum() or char in "-_" else " " for char in label).split())
        number = 1
        while name.casefold() in found:
            number += 1
            name = f"{plain}-{number}"
        found[name.casefold()] = name
    return list(found.values())


def plus_minus(mean: float, spread: float | None) -> str:
    """Write a metric with its spread over seeds.

    >>> plus_minus(0.97123, 0.0021), plus_minus(0.5, None), plus_minus(865.826, 47.7612)
    ('0.9712 ± 0.0021', '0.5000', '865.83 ± 47.76')
    """
    text = number(mean) if abs(mean) < 10 else f"{mean:.{2 if abs(mean) < 1000 else 0}f}"
    digits = ".2e" if "e" in text else f".{len(text.partition('.')[2])}f"
    return text if spread is None else f"{text} ± {spread:{digits}}"


def crossing_table(crossings: Sequence[Crossing]) -> Table:
    """Tabulate the crossing points."""
    rows = []
    for one in crossings:
        seeds = ", ".join(percent_text(percent) if percent else "none" for percent in one.by_seed.values())
        ahead = percent_text(one.below) if one.below else "none"
        ahead += " (whole range)" if one.below and not one.crossings else ""
        span = f"{percent_text(one.high)} to {percent_text(one.low)}"
        all_of_them = ", ".join(map(percent_text, one.crossings)) or "none"
        rows.append((one.arm, ahead, seeds or "no common seed", all_of_them, span, plus_minus(one.lead, one.lead_spread)))
    head = ("arm", "ahead from", "per seed", "all crossings", "common range", "lead at its low end")
    return Table("Crossing points", head, rows)


def rounds_table(arms: Sequence[Arm], metric: str, split: str) -> Table:
    """Tabulate all rounds of all arms."""
    rows = [
        (
            arm.label,
            str(point.round),
            percent_text(point.percent),
            f"{round(point.survivors):,}",
            str(len(point.seeds)),
            plus_minus(point.mean, point.spread),
        )
        for arm in arms
        for point in arm.points
    ]
    head = ("arm", "round", "of the real weights", "weights left", "seeds", axis_title(metric, split))
    return Table("Rounds", head, rows)


def as_text(title: str, arms: Sequence[Arm], metric: str, split: str, findings: Sequence[str], notes: Sequence[str]) -> str:
    """Write the first and the last round of each arm, the crossing points and what is missing."""
    view = plain_table("", "seeds", "weights", "first", "weights", "last")
    for arm in arms:
        first, last = arm.points[0], arm.points[-1]
        ends = [(percent_text(one.percent), plus_minus(one.mean, one.spread)) for one in (first, last)]
        view.add_row(arm.label, str(len(arm.seeds)), *ends[0], *ends[1])
    console = plain_console(file=io.StringIO())
    console.print(f"\n{title}: {axis_title(metric, split)}; percent of the real network's prunable weights\n")
    console.print(view)
    for text in (*findings, *notes[:MOST_NOTES]):
        console.print(text)
    if len(notes) > MOST_NOTES:
        console.print(f"and {len(notes) - MOST_NOTES} more such lines in lottery.md")
    return str(console.file.getvalue()).rstrip()  # type: ignore[attr-defined]
