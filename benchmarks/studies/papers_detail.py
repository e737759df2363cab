"""Write docs/papers/PAPER.md, and the settings and rows of each paper as CSV: ``python -m benchmarks.studies.papers``."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.figure import Figure
from zoo_reports.page import Table, plain_axes
from zoo_reports.statistics import Score

from benchmarks.machine import IMAGES, ROOT
from benchmarks.studies.papers_page import PAPERS, verdicts
from benchmarks.studies.papers_rows import RESULTS, Row, read_all
from benchmarks.studies.papers_verdicts import score

FOLDER = ROOT / "docs" / "papers"
LISTING = "paper's listing"
FORMATS = {
    "accuracy": "accuracy {:.3f}",
    "map": "MAP {:.3f}",
    "mse": "squared error {:.1e}",
    "bits_per_character": "bits per character {:.3f}",
    "perplexity": "perplexity {:.2f}",
    "bleu": "BLEU {:.1f}",
    "exact_match": "exact match {:.3f}",
}
"""Metrics in order of preference; the tables show the first two that a row has."""
ORDERED = re.compile(r"(trec|subj|mr|mpqa|sst)_(?:print_)?(transformer|lstm|cnn|fasttext)_(none|pe|tpe|vanilla|order)")
RELEASED = ("mpqa", "mr", "sst", "subj", "trec")
"""Data sets of the setting with the choices of the released code."""
POSITIONS = {
    "none": "none",
    "pe": "learned (PE)",
    "tpe": "trigonometric (TPE)",
    "vanilla": "complex-vanilla",
    "order": "complex-order",
}
KINDS = POSITIONS | {
    "order_normal": "complex-order, frequencies from N(0, 1)",
    "order_tenth": "complex-order, a tenth of the learning rate for frequencies",
    "order_hundredth": "complex-order, a hundredth of the learning rate for frequencies",
    "order_normal_tenth": "complex-order, frequencies from N(0, 1), a tenth of the learning rate for them",
}
RATED = re.compile(rf"trec_({'|'.join(KINDS)})_(\d+e-\d+)")
COLOURS = ("#1f4e79", "#c55a11", "#548235", "#7f6000", "#7030a0")


def algebra(row: Row) -> str:
    """Format the algebra of a row, its scope unless it is ``all``, and its attention score."""
    scope = row.config.get("scope", "all")
    parts = [f"`{row.config['algebra']}`", *([f"{scope} only"] if scope != "all" else []), *([row.score] if row.score else [])]
    return ", ".join(parts)


def result(row: Row) -> str:
    """Format the test metrics: mean ± half of the 95 % t-interval over seeds, or standard deviation over folds."""
    shown = []
    runs = [run["metrics"] for run in row.runs]
    for name, form in FORMATS.items():
        values = [run.get(name) for run in runs]
        if None in values or not (any(values) or name == "mse") or len(shown) == 2:
            continue
        if name == "perplexity":  # show the loss, its logarithm
            form, values = "loss {:.3f}", [run["loss"] for run in runs]
        spread, digits = "", form[form.index("{") : form.index("}") + 1]
        if (interval := Score(tuple(values)).interval) is not None:
            spread = f" ± {digits.format(interval)}"
        elif "std" in row.runs[0]:
            spread = f" (standard deviation {row.runs[0]['std'][name]:.3f} over {len(row.runs[0]['folds'])} folds)"
        shown.append(form.format(mean(values)) + spread)
    if beams := [run["beam"] for run in row.runs if "beam" in run]:
        shown.append(f"beam {beams[0]['beam']}: BLEU {mean(beam['bleu'] for beam in beams):.1f}")
    return "; ".join(shown)


def rows_table(rows: Iterable[Row]) -> Table:
    """Tabulate all rows of a paper."""
    head = ["row", "configuration", "data", "setting", "algebra", "weights", "word embeddings", "test", "seeds", "published"]
    lines = []
    for row in rows:
        parameters = row.runs[0]["parameters"]
        sizes = [str(parameters["total"] - parameters["embedding"]), str(parameters["embedding"])]
        cells = [row.name, f"configs/papers/{row.paper}/{row.sweep}.yaml", row.data, row.setting, algebra(row).replace("`", "")]
        lines.append([*cells, *sizes, result(row), str(len(row.runs)), row.published, row.extra.get("claim", ""), *notes(row)])
    return Table("", [*head, "claim", "notes", "other test sets", "results"], lines)


def notes(row: Row) -> list[str]:
    """Return the notes of a row, its accuracy on other test sets, and its file of results."""
    also = [run["also"] for run in row.runs if "also" in run]
    others = [f"{spec}: {mean(values[spec]['accuracy'] for values in also):.3f}" for spec in (also[0] if also else ())]
    return [" ".join(row.notes), "; ".join(others), f"benchmarks/results/papers/{row.stored}.json"]


def draw_curves(rows: Iterable[Row], name: str, label: str, images: Path = IMAGES) -> Path | None:
    """Plot a validation metric against steps, one line per row and seed; return None if no row has a curve."""
    curves = {row.name: runs for row in rows if (runs := [run["curve"] for run in row.runs if "curve" in run])}
    if not curves:
        return None
    figure = Figure(figsize=(7.2, 4.0), dpi=130, layout="constrained")
    axes = figure.subplots()
    for color, (row, runs) in zip(COLOURS * len(curves), curves.items(), strict=False):
        for number, curve in enumerate(runs):
            steps, values = zip(*curve, strict=True)
            axes.plot(steps, values, color=color, linewidth=1.6, label=None if number else row.replace("_", " "))
    axes.set_xlabel("steps")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    plain_axes(axes)
    axes.legend(frameon=False)
    images.mkdir(parents=True, exist_ok=True)
    figure.savefig(images / f"{name}.png", metadata={"Software": None})
    return images / f"{name}.png"


# --- Sections of the complex-order paper ---


def word_order(rows: Iterable[Row]) -> Table:
    """Tabulate the mean test accuracy over data sets by network, setting and positions, and the published mean."""
    cells: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        if (match := ORDERED.fullmatch(row.name)) and row.runs and row.printed and row.setting in ("", LISTING):
            cells.setdefault((match[2], row.setting, match[1]), {})[match[3]] = row
    complete = {key: cell for key, cell in cells.items() if len(cell) == len(POSITIONS)}
    lines = []
    for net, setting in dict.fromkeys(key[:2] for key in complete):
        by_data = {key[2]: cell for key, cell in complete.items() if key[:2] == (net, setting)}
        means = [
            f"{mean(score(cell[kind], 'accuracy').mean for cell in by_data.values()):.3f} "
            f"({mean(cell[kind].printed[1] for cell in by_data.values()):.3f})"  # type: ignore[index]
            for kind in POSITIONS
        ]
        lines.append([f"{net}, {setting or 'our first setting'}", *means])
    return Table("", ["network", *POSITIONS.values()], lines)


def parts(measured: Mapping[str, Row]) -> Table:
    """Tabulate the effect of the frequencies and the norm on complex-order, complex-vanilla and real networks."""
    names = {
        "complex-order, 10000^(-d/D), layer norm": ("mr_transformer_order", "trec_order_1e-3"),
        "complex-order, N(0, 1), layer norm": ("released_mr_normal_layer", "trec_order_normal_1e-3"),
        "complex-order, 10000^(-d/D), batch norm": ("released_mr_decay_batch", ""),
        "complex-order, N(0, 1), batch norm": ("mr_print_transformer_order", "trec_print_transformer_order"),
        "complex-vanilla, layer norm": ("mr_transformer_vanilla", "trec_vanilla_1e-3"),
        "complex-vanilla, batch norm": ("mr_print_transformer_vanilla", "trec_print_transformer_vanilla"),
        "real, layer norm": ("mr_transformer_none", "trec_none_1e-3"),
        "real, batch norm": ("released_mr_real_batch", ""),
    }
    lines = [
        [title, *(result(measured[name]) if name in measured else "not run" for name in pair)] for title, pair in names.items()
    ]
    return Table("", ["Transformer", "mr", "trec"], lines)


def effects(measured: Mapping[str, Row]) -> str:
    """State how the frequencies and the norm change accuracy on mr."""
    changes = {
        "N(0, 1) frequencies": ("mr_transformer_order", "released_mr_normal_layer"),
        "batch norm": ("mr_transformer_order", "released_mr_decay_batch"),
        "both": ("mr_transformer_order", "mr_print_transformer_order"),
        "batch norm in complex-vanilla": ("mr_transformer_vanilla", "mr_print_transformer_vanilla"),
        "batch norm in the real network": ("mr_transformer_none", "released_mr_real_batch"),
    }
    if not all(name in measured for pair in changes.values() for name in pair):
        return ""
    means = {name: score(measured[name], "accuracy").mean for pair in changes.values() for name in pair}
    effect = ", ".join(f"{title} {means[after] - means[before]:+.3f}" for title, (before, after) in changes.items())
    return f"Change of the Transformer's mean accuracy on `mr`: {effect}."


def released(measured: Mapping[str, Row]) -> Table:
    """Tabulate the mean accuracy of complex-order and complex-vanilla over the data sets that all three settings have."""
    titles = {f"{net}, complex-order": (net, net, "order") for net in ("cnn", "fasttext", "lstm")}
    titles |= {f"transformer, complex-{kind}": (kind, "transformer", kind) for kind in ("order", "vanilla")}
    lines = []
    for title, (ours, net, kind) in titles.items():
        found = {}
        for data in RELEASED:
            names = (f"released_{data}_{ours}", f"{data}_print_{net}_{kind}", f"{data}_{net}_{kind}")
            if set(names) <= measured.keys():
                found[data] = [measured[name] for name in names]
        if found:
            means = [mean(score(row, "accuracy").mean for row in same) for same in zip(*found.values(), strict=True)]
            published = mean(rows[-1].printed[1] for rows in found.values() if rows[-1].printed)
            lines.append([title, ", ".join(found), *(f"{value:.3f}" for value in (*means, published))])
    return Table("", ["network", "data sets", "released code", LISTING, "our first setting", "published"], lines)


def rates(rows: Iterable[Row]) -> Table:
    """Tabulate validation accuracy by positions and learning rate, and the test accuracy at the best rate, for one seed."""
    by_rate = {match.groups(): row for row in rows if row.runs and (match := RATED.fullmatch(row.name))}
    columns = sorted({rate for _, rate in by_rate}, key=float, reverse=True)
    lines = []
    for kind, title in KINDS.items():
        values = {
            rate: mean(run["chosen"][0]["val_accuracy"] for run in by_rate[kind, rate].runs)
            for rate in columns
            if (kind, rate) in by_rate
        }
        if not values:
            continue
        best = max(values, key=lambda rate: values[rate])
        cells = [f"{values[rate]:.3f}" if rate in values else "" for rate in columns]
        lines.append([title, *cells, f"{score(by_rate[kind, best], 'accuracy').mean:.3f}"])
    return Table("", ["positions", *columns, "test"], lines)


def sensitivity(results: Path) -> list[str]:
    """List the words that are most and least sensitive to position (Wang et al. 2020, App. D)."""
    path = results / "sst_frequencies.json"
    if not path.exists():
        return []
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    most, least = (", ".join(word["word"] for word in stored[name][:5]) for name in ("most", "least"))
    return [
        f"**Sensitivity of words to position** (`zoo report frequencies` of the complex-order Transformer on SST, "
        f"{stored['words']:,} words): the largest mean frequencies are those of {most}; the smallest those of {least}. In "
        "Table 7 of the paper, words of strong sentiment rank first.",
        "",
        "![Density of the mean frequency over words](../images/sst_frequencies.png)",
    ]


def extras(rows: Sequence[Row], results: Path) -> list[str]:
    """Write the results that only one paper has."""
    paper, measured = rows[0].paper, {row.name: row for row in rows}
    if paper == "quaternion_nlp":
        return ["![Exact match on validation pairs against steps, Table 4](../images/mlu_exact_match.png)", ""]
    if paper != "complex_order":
        return []
    return [
        "Mean test accuracy over data sets for each kind of positions, the published mean in parentheses:",
        "",
        *word_order(rows).as_markdown(),
        "",
        effects(measured),
        "",
        *sensitivity(results),
        "",
    ]


def verdicts_of(paper: str, rows: Iterable[Row]) -> list[str]:
    """Tabulate our verdicts on the published tables of a paper, one line for networks that have the same."""
    nets: dict[tuple[str, str, str], list[str]] = {}
    for name, table, net, data, setting, text, *_ in verdicts(rows).rows:
        if name == paper:
            where = setting if "," in data else f"{data}, {setting}".removesuffix(", ")
            nets.setdefault((table, where, text.replace(", smaller differences", "*")), []).append(net)
    lines = [[f"{table}, {', '.join(dict.fromkeys(names))}", setting, text] for (table, setting, text), names in nets.items()]
    starred = any(text.endswith("*") for *_, text in lines)
    note = ["", r"\* with smaller differences than published"] if starred else []
    return [*Table("", ["published table", "setting", "verdict here"], lines).as_markdown(left=3), *note, ""] if lines else []


def page(paper: str, rows: Sequence[Row], results: Path) -> str:
    """Write the page of a paper."""
    about = PAPERS[paper]
    measured = [row for row in rows if row.paper == paper and row.runs]
    machines = [run["machine"] for row in measured for run in row.runs]
    dates = sorted({one["date"] for one in machines})
    processors = " or ".join(sorted({one["processor" if one["device"] == "cpu" else "device"] for one in machines}))
    folder = "../../benchmarks/results/papers"
    lines = [
        f"# {about['title']} ({about['cite']})",
        "",
        f"**{about['question']}**",
        "",
        about["answer"],
        "",
        *verdicts_of(paper, rows),
        *extras(measured, results),
        "## How it was measured",
        "",
        f"{sum(len(row.runs) for row in measured)} runs of {len(measured)} rows, {dates[0]} to {dates[-1]}, on {processors}. "
        "[The method](../method.md#published-tables) defines the verdicts.",
        "",
        f"- [All rows]({folder}/{paper}.csv): algebra, weights, test results with intervals, seeds, published results, notes.",
        f"- [Settings]({folder}/{paper}_settings.csv) of the paper and ours.",
        *(f"- [{title}]({folder}/{name})." for name, (title, _) in more_tables(paper, rows).items()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def more_tables(paper: str, rows: Sequence[Row]) -> dict[str, tuple[str, Table]]:
    """Return further tables of a paper, with their titles, by the names of their CSV files."""
    if paper != "complex_order":
        return {}
    measured = [row for row in rows if row.paper in PAPERS[paper]["sweeps"] and row.runs]
    by_name = {row.name: row for row in measured}
    return {
        "complex_order_parts.csv": ("Frequencies or norm? One part changed at a time", parts(by_name)),
        "complex_order_released.csv": ("The released code, the paper's listing and our first setting", released(by_name)),
        "complex_order_rates.csv": ("Validation accuracy by learning rate on TREC", rates(measured)),
    }


def tables(paper: str, rows: Sequence[Row]) -> dict[str, Table]:
    """Return all tables of a paper by the names of their CSV files."""
    about = PAPERS[paper]
    setting = [[point, *cells] for point, cells in about["setting"].items()]
    found = {f"{paper}.csv": rows_table(row for row in rows if row.paper == paper and row.runs)}
    found[f"{paper}_settings.csv"] = Table("", ["", *about["columns"]], setting)
    return found | {name: table for name, (_, table) in more_tables(paper, rows).items()}


def write(folder: Path = FOLDER, results: Path = RESULTS) -> None:
    """Write the page of each paper that has measured rows, and the CSV files of its tables."""
    rows = read_all()
    folder.mkdir(parents=True, exist_ok=True)
    for paper in PAPERS:
        if any(row.runs for row in rows if row.paper == paper):
            (folder / f"{paper}.md").write_text(page(paper, rows, RESULTS), encoding="utf-8")
            for name, table in tables(paper, rows).items():
                (results / name).write_text(table.as_csv(), encoding="utf-8")
