"""The learning rate of each kind of positions, chosen on validation rows: the rows of configs/papers/rates."""

import re
from collections.abc import Iterable
from statistics import mean

from benchmarks.papers_glance import POSITIONS, cell, table
from benchmarks.papers_rows import Row

KINDS = POSITIONS | {
    "order_normal": "complex-order, frequencies from N(0, 1)",
    "order_tenth": "complex-order, frequencies at a tenth of the rate",
    "order_hundredth": "complex-order, frequencies at a hundredth of the rate",
    "order_normal_tenth": "complex-order, from N(0, 1) at a tenth of the rate",
}
NAMED = re.compile(rf"trec_({'|'.join(KINDS)})_(\d+e-\d+)")


def rates(rows: Iterable[Row]) -> list[str]:
    """Write validation accuracy by kind of positions and learning rate, the best bold, and its test accuracy; or nothing."""
    rows = list(rows)
    found = {match.groups(): row for row in rows if row.paper == "rates" and row.runs and (match := NAMED.fullmatch(row.name))}
    columns = sorted({rate for _, rate in found}, key=float, reverse=True)
    if not columns:
        return []
    seeds = sorted({len(row.runs) for row in found.values()})
    told = "one seed each, which tells nothing of the spread" if seeds == [1] else f"from {seeds[0]} to {seeds[-1]} seeds"
    lines = {title: _line({rate: found.get((kind, rate)) for rate in columns}) for kind, title in KINDS.items()}
    best = {(kind, rate): mean(run["chosen"][0]["val_accuracy"] for run in row.runs) for (kind, rate), row in found.items()}
    chosen = {max((rate for other, rate in best if other == kind), key=lambda rate: best[kind, rate]) for kind, _ in best}
    ahead = [max(kinds, key=lambda one: best[one]) for kinds in (best, [one for one in best if "order" in one[0]]) if kinds]
    leaders = [f"{KINDS[one[0]]}, {best[one]:.3f}" for one in dict.fromkeys(ahead)]
    return [
        "## Learning rates, chosen on validation rows",
        "",
        "The Transformer of Wang et al. (2020) on `trec`: validation accuracy by learning rate, the best of each",
        f"line bold, and the test accuracy there ({told}). The tables above have 1e-3 for all.",
        "",
        f"Validation chooses {' or '.join(sorted(chosen, key=float))}. In front: {'; of complex-order: '.join(leaders)}.",
        "",
        *table("positions", [*columns, "test"], {title: cells for title, cells in lines.items() if any(cells)}),
        *causes(rows),
    ]


def causes(rows: Iterable[Row]) -> list[str]:
    """Say what each part of the paper's setting costs on validation rows; nothing where one of its rows was not run."""
    names = "trec_{}_1e-3", "trec_{}_normal_1e-3", "trec_print_transformer_{}"
    wanted = [name.format("order") for name in names] + [name.format("vanilla") for name in (names[0], names[2])]
    runs = {row.name: row.runs[0] for row in rows if row.name in wanted and row.runs}
    if len(runs) < len(wanted):
        return []
    first = {name: run["chosen"][0]["val_accuracy"] for name, run in runs.items()}
    tested = [f"{runs[name]['metrics']['accuracy']:.3f}" for name in wanted[:3]]
    plain, normal, printed, vanilla, vanilla_printed = (f"{first[name]:.3f}" for name in wanted)
    return [
        "### Causes",
        "",
        "What each part of the setting closer to the paper costs complex-order in the Transformer on `trec`, one seed; other",
        "sets were not taken apart. On validation rows (1e-3, seed 0) it has",
        f"{plain} with layer norm and frequencies of 10000^(-d/D), {normal} with frequencies from N(0, 1), and",
        f"{printed} with batch norm for each part too; complex-vanilla, which has no frequencies, {vanilla} with layer",
        f"norm and {vanilla_printed} with batch norm. On test rows the three of complex-order have {', '.join(tested)}.",
        "",
    ]


def _line(rows: dict[str, Row | None]) -> list[str]:
    """Show the validation accuracy of one kind by rate, and the test accuracy of the best."""
    validation = {rate: [run["chosen"][0]["val_accuracy"] for run in row.runs] for rate, row in rows.items() if row}
    if not validation:
        return [""] * (len(rows) + 1)
    best = max(validation, key=lambda rate: mean(validation[rate]))
    cells = [cell(validation[rate], bold=rate == best) if rate in validation else "" for rate in rows]
    chosen = rows[best]
    return [*cells, cell(run["metrics"]["accuracy"] for run in chosen.runs) if chosen else ""]
