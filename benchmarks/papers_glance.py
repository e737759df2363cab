"""The head of docs/papers.md: word order by data set and network, algebras by task."""

import re
from collections.abc import Iterable
from statistics import mean, stdev
from typing import Any

ORDERED = re.compile(r"(trec|subj|mr|mpqa|sst)_(transformer|lstm|cnn|fasttext)_(none|pe|tpe|vanilla|order)")
POSITIONS = {
    "none": "none",
    "pe": "learned (PE)",
    "tpe": "trigonometric (TPE)",
    "vanilla": "complex-vanilla",
    "order": "complex-order",
}
FIGURES = {
    "accuracy": ("accuracy", 3),
    "map": ("MAP", 3),
    "bits_per_character": ("bits per character", 3),
    "bleu": ("BLEU", 1),
    "exact_match": ("exact match", 3),
}
"""What a task is measured by: the first that all of its rows have and that is not zero for all, as BLEU of short answers is."""

Rows = dict[str, dict[str, Any]]


def table(corner: str, columns: Iterable[str], lines: dict[str, list[str]]) -> list[str]:
    """Write a table in Markdown, numbers to the right, an empty line behind it."""
    columns = list(columns)
    head = [f"| {corner} | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    return [*head, *(f"| {name} | {' | '.join(cells)} |" for name, cells in lines.items()), ""]


def cell(values: list[float], digits: int = 3) -> str:
    """Show the mean over seeds, and their standard deviation where there are several."""
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def order(stored: Rows, printed: dict[str, str]) -> list[str]:
    """Write test accuracy by positions and data set, one table a network; the best of ours bold, the paper's in brackets."""
    found = {match.groups(): name for name in stored if (match := ORDERED.fullmatch(name))}
    lines: list[str] = []
    for net in dict.fromkeys(net for _, net, _ in found):
        sets = sorted({data for data, other, _ in found if other == net}, key=ORDERED.pattern.index)
        columns = [_column([found.get((data, net, positions)) for positions in POSITIONS], stored, printed) for data in sets]
        rows = {title: list(cells) for title, cells in zip(POSITIONS.values(), zip(*columns, strict=True), strict=True)}
        lines += table(f"{net}, positions", [f"`{data}`" for data in sets], rows)
    return lines


def _column(names: list[str | None], stored: Rows, printed: dict[str, str]) -> list[str]:
    """Show the accuracy of some rows, the best bold, and behind it the printed one; nothing for a row that is not there."""
    values = {name: [one["metrics"]["accuracy"] for one in stored[name]["rows"]] for name in names if name}
    best = max(mean(several) for several in values.values())
    cells: dict[str | None, str] = {None: ""}
    for name, several in values.items():
        theirs = re.match(r"accuracy ([\d.]+)", printed.get(name, ""))
        ours = f"**{cell(several)}**" if mean(several) == best else cell(several)
        cells[name] = ours + (f" ({theirs[1]})" if theirs else "")
    return [cells[name] for name in names]


def algebras(papers: dict[str, Rows]) -> list[str]:
    """Write what each algebra reaches in each task that a real network and two others have been trained for."""
    groups: dict[tuple[str, ...], Rows] = {}
    for rows in papers.values():
        for row in rows.values():
            config = row["config"]
            key = config["data"], config["backbone"], str(config.get("embedding"))
            groups.setdefault(key, {})[algebra(config)] = row
    groups = {key: group for key, group in groups.items() if "`real`" in group and len(group) > 2}
    figures = [_figures(group) for group in groups.values()]
    labels = sorted({name for group in groups.values() for name in group}, key=_rank)
    titles = [f"`{key[0].partition('(')[0]}`, {figure}" for key, (figure, _) in zip(groups, figures, strict=True)]
    return table("algebra", titles, {name: [cells.get(name, "") for _, cells in figures] for name in labels})


def algebra(config: dict[str, Any]) -> str:
    """Name the algebra of a row, and its scope unless that is all."""
    scope = config.get("scope", "all")
    return f"`{config['algebra']}`" + ("" if scope == "all" else f", {scope} only")


def _figures(group: Rows) -> tuple[str, dict[str, str]]:
    """Choose what a group is measured by, and show it for every algebra."""
    for name, (title, digits) in FIGURES.items():
        values = {label: [one["metrics"].get(name) for one in row["rows"]] for label, row in group.items()}
        if all(value is not None for several in values.values() for value in several) and any(map(any, values.values())):
            return title, {label: cell(several, digits) for label, several in values.items()}
    raise ValueError(f"none of {', '.join(FIGURES)} was measured for {', '.join(group)}")


def _rank(label: str) -> tuple[int, int, str]:
    """Put the real numbers first, then the fixed algebras of the papers, then others by their size."""
    names = ["real", "complex_order", "quaternion", "octonion"]
    name, size = re.match(r"`(\w+)(?:-(\d+))?", label).groups()  # type: ignore[union-attr]
    return (names.index(name) if name in names else len(names) + int(size or 0)), len(label), label
