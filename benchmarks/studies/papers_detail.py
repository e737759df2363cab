"""Write docs/papers/PAPER.md with the settings and rows of each paper: ``python -m benchmarks.studies.papers``."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.figure import Figure
from zoo_reports.page import plain_axes
from zoo_reports.statistics import Score

from benchmarks.machine import IMAGES, ROOT
from benchmarks.studies.papers_page import PAPERS
from benchmarks.studies.papers_rows import CONFIGS, RESULTS, Row, read_all
from benchmarks.studies.papers_verdicts import Comparison, comparisons, score, tally, verdict

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


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: int = 1) -> list[str]:
    """Format a Markdown table; right-align the columns from index ``right`` on."""
    rule = "".join("---|" if number < right else "---:|" for number in range(len(head)))
    return [f"| {' | '.join(head)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows), ""]


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


def line(row: Row, notes: list[str]) -> list[str]:
    """Format the cells of a row."""
    parameters = row.runs[0]["parameters"]
    letters = ", ".join(sorted(chr(ord("a") + notes.index(note)) for note in row.notes if note in notes))
    return [
        f"[{row.name}](../../configs/papers/{row.paper}/{row.sweep}.yaml)",
        algebra(row),
        f"{(parameters['total'] - parameters['embedding']) / 1000:,.0f}K + {parameters['embedding'] / 1000:,.0f}K",
        result(row),
        f"[{len(row.runs)}](../../benchmarks/results/papers/{row.stored}.json)",
        row.published,
        letters,
    ]


def rows_of(group: Sequence[Row], compared: Iterable[Comparison]) -> list[str]:
    """Write the table of one data set and setting, its notes, and the verdicts on the published tables."""
    notes = list(dict.fromkeys(note for row in group for note in row.notes))
    shared = [note for note in notes if all(note in row.notes for row in group)]
    some = [note for note in notes if note not in shared]
    lines = table(
        ["row", "algebra", "weights + word embeddings", "test", "seeds", "published", "notes"],
        [line(row, some) for row in group],
        7,
    )
    lines += [f"All rows: {' '.join(shared)}", ""] if shared else []
    lines += [*(f"- {chr(ord('a') + number)}: {note}" for number, note in enumerate(some)), ""] if some else []
    for comparison in compared:
        pairs, published, ours = comparison.pairs(), comparison.rows[0], next(iter(comparison.scores), "none")
        lines.append(
            f"- **{comparison.table}, {published.net.replace('_', ' ')}: {verdict(pairs)}**. Best published: {published.name}; "
            f"best here: {ours}. Pairs of rows: {tally(pairs)}."
        )
    claims = [row.extra["claim"] for row in group if "claim" in row.extra]
    return [*lines, *(f"- Published: {claim}." for claim in claims), ""]


def sections(rows: Iterable[Row], compared: Sequence[Comparison]) -> list[str]:
    """Write a section for each data set and setting."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.data, row.setting), []).append(row)
    lines = []
    for (data, setting), group in groups.items():
        key = group[0].paper, data, setting
        of_group = [one for one in compared if (one.rows[0].paper, one.rows[0].data, one.rows[0].setting) == key]
        lines += [f"## `{data}`{f', {setting}' if setting else ''}", "", *rows_of(group, of_group)]
        if any("curve" in run for row in group for run in row.runs):
            lines += ["![exact match on validation pairs against steps](../images/mlu_exact_match.png)", ""]
        lines += other_tests(group)
    return lines


def other_tests(group: Sequence[Row]) -> list[str]:
    """Write the accuracy of the same models on other test sets."""
    results = {row.name: runs for row in group if (runs := [run["also"] for run in row.runs if "also" in run])}
    if not results:
        return []
    specs = list(next(iter(results.values()))[0])
    rows = [[name, *(f"{mean(run[spec]['accuracy'] for run in runs):.3f}" for spec in specs)] for name, runs in results.items()]
    return ["Accuracy of the same models on other test sets:", "", *table(["row", *(f"`{spec}`" for spec in specs)], rows)]


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


def word_order(rows: Iterable[Row]) -> list[str]:
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
        lines.append([f"{net}, {setting or 'our first setting'}", ", ".join(by_data), *means])
    if not lines:
        return []
    return [
        "## Summary",
        "",
        "Mean test accuracy over data sets for each kind of positions. The published mean is in parentheses (LSTM, CNN and",
        "FastText use word2vec there).",
        "",
        *table(["network", "data sets", *POSITIONS.values()], lines, 2),
        *parts(rows),
    ]


def parts(rows: Iterable[Row]) -> list[str]:
    """Tabulate the effect of the frequencies and the norm on complex-order, complex-vanilla and real networks."""
    measured = {row.name: row for row in rows if row.runs}
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
    return [
        "## Norm or frequencies?",
        "",
        "Test accuracy of the Transformer, changing one part at a time.",
        "",
        *table(["Transformer", "`mr`", "`trec`"], lines),
        *effects(measured),
        *released_rate(measured),
        *released(measured),
    ]


def effects(measured: Mapping[str, Row]) -> list[str]:
    """State how the frequencies and the norm change accuracy on mr."""
    changes = {
        "N(0, 1) frequencies": ("mr_transformer_order", "released_mr_normal_layer"),
        "batch norm": ("mr_transformer_order", "released_mr_decay_batch"),
        "both": ("mr_transformer_order", "mr_print_transformer_order"),
        "batch norm in complex-vanilla": ("mr_transformer_vanilla", "mr_print_transformer_vanilla"),
        "batch norm in the real network": ("mr_transformer_none", "released_mr_real_batch"),
    }
    if not all(name in measured for pair in changes.values() for name in pair):
        return []
    means = {name: score(measured[name], "accuracy").mean for pair in changes.values() for name in pair}
    effect = ", ".join(f"{title} {means[after] - means[before]:+.3f}" for title, (before, after) in changes.items())
    return [f"Change of the mean accuracy on `mr`: {effect}.", ""]


def released_rate(measured: Mapping[str, Row]) -> list[str]:
    """State the accuracy of a real network with the learning rate of the released code."""
    names = ("trec_transformer_tpe", "released_trec_slow")
    if not all(name in measured for name in names):
        return []
    ours, slow = (result(measured[name]) for name in names)
    published = measured[names[1]].published
    text = f"The real Transformer with trigonometric positions on `trec`: {ours} in our first setting, {slow} with the learning"
    return [text, f"rate, amplitudes and readout of the released code after 60 epochs; published: {published}.", ""]


def released(measured: Mapping[str, Row]) -> list[str]:
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
    text = [
        "Mean test accuracy over the data sets that all settings have. Complex-vanilla has N(0, 1) frequencies in the released",
        "code, as complex-order in the paper's listing, and no frequencies in the other settings.",
    ]
    head = ["network", "data sets", "released code", LISTING, "our first setting", "published"]
    return ["## The released code", "", *text, "", *table(head, lines, 2)] if lines else []


def rates(rows: Iterable[Row]) -> list[str]:
    """Tabulate validation accuracy by positions and learning rate (best in bold) and the test accuracy at the best rate."""
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
        cells = [
            f"**{values[rate]:.3f}**" if rate == best else f"{values[rate]:.3f}" if rate in values else "" for rate in columns
        ]
        lines.append([title, *cells, f"{score(by_rate[kind, best], 'accuracy').mean:.3f}"])
    if not lines:
        return []
    head = "## Learning rates of the Transformer on `trec`"
    text = "Validation accuracy for each learning rate (best in bold) and test accuracy at the best rate; one seed."
    return [head, "", text, "", *table(["positions", *columns, "test"], lines)]


def sensitivity(results: Path) -> list[str]:
    """List the words that are most and least sensitive to position (Wang et al. 2020, App. D)."""
    path = results / "sst_frequencies.json"
    if not path.exists():
        return []
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    most, least = (", ".join(word["word"] for word in stored[name]) for name in ("most", "least"))
    return [
        "## Sensitivity of words to position",
        "",
        f"`zoo report frequencies` of the complex-order Transformer on SST ([configuration](../../{stored['config']}), seed "
        f"{stored['seed']}), {stored['words']:,} words. In Table 7 of the paper, words of strong sentiment rank first.",
        "",
        f"Largest mean frequency: {most}.",
        "",
        f"Smallest mean frequency: {least}.",
        "",
        "![density of the mean frequency over words](../images/sst_frequencies.png)",
        "",
    ]


def page(paper: str, rows: Sequence[Row], results: Path) -> str:
    """Write the page of a paper."""
    about = PAPERS[paper]
    measured = [row for row in rows if row.paper in about["sweeps"] and row.runs]
    runs = [run for row in measured for run in row.runs]
    dates = sorted({run["machine"]["date"] for run in runs})
    machines = [run["machine"] for run in runs]
    processors = " or ".join(sorted({one["processor" if one["device"] == "cpu" else "device"] for one in machines}))
    versions = " or ".join(sorted({one["torch"] for one in machines}))
    setting = [[point, *cells] for point, cells in about["setting"].items()]
    extras = [*word_order(measured), *rates(measured), *sensitivity(results)] if paper == "complex_order" else []
    lines = [
        f"# {about['title']} ({about['cite']})",
        "",
        "Generated by `python -m benchmarks.studies.papers`; do not edit. The [summary](../papers.md) has all verdicts.",
        "",
        "## Settings",
        "",
        *table(["", *about["columns"]], setting, 9),
        "Each row links to its configuration, and the number of seeds to all results, versions and commits. Test results are "
        f"mean ± half of the 95 % t-interval over seeds. Measured {' to '.join(sorted({dates[0], dates[-1]}))} on {processors} "
        f"with torch {versions}.",
        "",
        *extras,
        *sections([row for row in measured if row.paper == paper], comparisons(rows)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def write(folder: Path = FOLDER, results: Path = RESULTS, configs: Path = CONFIGS) -> None:
    """Write the page of each paper that has measured rows."""
    rows = read_all(configs, results)
    folder.mkdir(parents=True, exist_ok=True)
    for paper, about in PAPERS.items():
        if any(row.runs for row in rows if row.paper in about["sweeps"]):
            (folder / f"{paper}.md").write_text(page(paper, rows, results), encoding="utf-8")
