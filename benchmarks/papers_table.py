"""Write docs/papers.md from the measured rows: ``python -m benchmarks.papers``."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev

from benchmarks import papers_chance, papers_glance
from benchmarks.papers_absent import ABSENT
from benchmarks.papers_glance import CLOSER, SHORT
from benchmarks.papers_rates import causes, rates
from benchmarks.papers_rows import CONFIGS, RESULTS, ROOT, Row, read_all
from benchmarks.papers_verdicts import Comparison, comparisons, lines

PAGE = ROOT / "docs" / "papers.md"
SHOWN = {
    "accuracy": "accuracy {:.3f}",
    "map": "MAP {:.3f}",
    "mrr": "MRR {:.3f}",
    "top1": "top 1 {:.3f}",
    "mse": "squared error {:.1e}",
    "bits_per_character": "bits per character {:.3f}",
    "perplexity": "perplexity {:.2f}",
    "exact_match": "exact match {:.3f}",
    "bleu": "BLEU {:.1f}",
    "chrf": "chrF {:.1f}",
}
PAPERS = {
    "complex_order": "Encoding word order in complex embeddings",
    "quaternion_nlp": "Lightweight and efficient neural NLP with quaternion networks",
    "phm": "Beyond fully-connected layers with quaternions: PHM",
    "fraction": "Transformers at a Fraction",
}


def score(row: Row) -> str:
    """Show the test metrics: the mean, and each seed where there is more than one."""
    shown = []
    figures = [name for name in SHOWN if row.runs[0]["metrics"].get(name) is not None]
    if "bleu" in figures and not any(run["metrics"]["bleu"] for run in row.runs):  # answers of one word have no BLEU
        figures = [name for name in figures if name not in ("bleu", "chrf")]
    for name in figures:
        title, form = SHOWN[name].rsplit(" ", 1)
        values = [run["metrics"][name] for run in row.runs]
        if name == "perplexity":  # of characters: everybody gives its logarithm, the loss
            title, form, values = "loss", "{:.3f} nats", [run["metrics"]["loss"] for run in row.runs]
        text = f"{title} {form.format(mean(values))}"
        if len(values) > 1:
            unit = " nats" if form.endswith(" nats") else ""
            each = ", ".join(form.format(value).removesuffix(unit) for value in values)
            text += f" ± {form.format(stdev(values)).removesuffix(unit)} ({each})"
        if "std" in row.runs[0]:
            text += f" ± {row.runs[0]['std'][name]:.3f} over {len(row.runs[0]['folds'])} folds"
        shown.append(text)
    beams = [run["beam"] for run in row.runs if "beam" in run]
    if beams:
        found = ", ".join(SHOWN[name].format(mean(beam[name] for beam in beams)) for name in ("exact_match", "bleu", "chrf"))
        shown.append(f"with a beam of {beams[0]['beam']} {found}")
    return "; ".join(shown)


def line(row: Row, notes: list[str]) -> str:
    """Write one row of the table, with the numbers of its notes."""
    parameters = row.runs[0]["parameters"]
    tables = parameters["embedding"]
    link = f"[{row.name}](../configs/papers/{row.paper}/{row.sweep}.yaml)"
    seeds = f"[{len(row.runs)}](../benchmarks/results/papers/{row.paper}/{row.name}.json)"
    weights = f"{(parameters['total'] - tables) / 1000:,.0f}K"
    numbers = ", ".join(map(str, sorted(notes.index(note) + 1 for note in row.notes)))
    cells = [link, papers_glance.algebra(row), weights, f"{tables / 1000:,.0f}K", score(row), seeds, row.published, numbers]
    return f"| {' | '.join(cells)} |"


def also(row: Row) -> list[str]:
    """Write the other test sets of a row, mean accuracy over seeds."""
    runs = [run["also"] for run in row.runs if "also" in run]
    return [f"{mean(run[spec]['accuracy'] for run in runs):.3f}" for spec in runs[0]] if runs else []


def section(paper: str, rows: Iterable[Row], compared: Iterable[Comparison]) -> list[str]:
    """Write the part of a paper, one table for each data set and setting."""
    text = [f"## {PAPERS.get(paper, paper)} ({SHORT.get(paper, paper)})", ""]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.paper == paper and row.runs:
            groups.setdefault((row.data, row.setting), []).append(row)
    for (data, setting), group in groups.items():
        notes = list(dict.fromkeys(note for row in group for note in row.notes))
        text += [
            f"### `{data}`" + (f", {setting}" if setting else ""),
            "",
            "| row | algebra | weights | in word tables | test, ours | seeds | published | notes |",
        ]
        text += ["|---|---|---:|---:|---|---:|---|---|", *(line(row, notes) for row in group), ""]
        text += [*told(group, [one for one in compared if (one.paper, one.data, one.setting) == (paper, data, setting)])]
        text += [f"{number}. {note}" for number, note in enumerate(notes, 1)] + ([""] if notes else [])
        text += [*curves(group), *other_tests(group)]
    return text


def told(group: list[Row], compared: list[Comparison]) -> list[str]:
    """Write the three lines of each table: what the paper found, what was found here, whether the order holds."""
    if compared:
        return [text for one in compared for text in lines(one)]
    claims = [row.extra["claim"] for row in group if "claim" in row.extra]
    printed = claims or [f"{row.name}: {row.published}" for row in group if row.published]
    names = [*papers_glance.SHOWN, *SHOWN]
    name = next(name for name in names if all(run["metrics"].get(name) is not None for row in group for run in row.runs))
    here = ", ".join(f"{row.name} {SHOWN[name].format(papers_chance.figure(row, name).mean)}" for row in group)
    return [
        f"- In print: {'; '.join(printed) or 'none of these rows'}.",
        f"- Here: {here}.",
        "- Order: not compared.",
        "",
    ]


def other_tests(group: list[Row]) -> list[str]:
    """Write what the same models reach on other test sets."""
    others = {row.name: cells for row in group if (cells := also(row))}
    if not others:
        return []
    specs = next(run["also"] for row in group for run in row.runs if "also" in run)
    text = ["Accuracy of the same models on other test sets:", ""]
    return text + papers_glance.table("row", [f"`{spec}`" for spec in specs], others)


def curves(group: list[Row]) -> list[str]:
    """Write the validation figures that were kept step by step, mean over seeds, one line for each tenth of the steps."""
    kept = {row.name: found for row in group if (found := [run["curve"] for run in row.runs if "curve" in run])}
    if not kept:
        return []
    steps = [step for step, _ in next(iter(kept.values()))[0]]
    every = max(1, len(steps) // 10)
    chosen = steps[every - 1 :: every]
    shown = {}
    for name, found in kept.items():
        values = {step: mean(dict(map(tuple, one))[step] for one in found) for step in chosen}
        shown[name] = [f"{values[step]:.3f}" for step in chosen]
    text = ["Exact match on validation pairs against steps:", ""]
    text += papers_glance.table("row", [f"{step:,}" for step in chosen], shown)
    return [*text, "![exact match against steps](images/mlu_exact_match.png)", ""]


def sensitivity(results: Path = RESULTS) -> list[str]:
    """Write the words by their sensitivity to position (Wang et al. 2020, App. D), as ``zoo report frequencies`` found them."""
    path = results / "sst_frequencies.json"
    if not path.exists():
        return []
    stored = json.loads(path.read_text(encoding="utf-8"))
    ends = {name: ", ".join(word["word"] for word in stored[name]) for name in ("most", "least")}
    return [
        "### Words by their sensitivity to position",
        "",
        f"`zoo report frequencies` of the complex-order Transformer on SST ([configuration](../{stored['config']}), seed "
        f"{stored['seed']}), {stored['words']:,} words. In the paper's Table 7 words of strong sentiment lead.",
        "",
        f"Greatest mean frequency first: {ends['most']}.",
        "",
        f"Smallest first: {ends['least']}.",
        "",
        "![density of the mean frequency over words](images/sst_frequencies.png)",
        "",
    ]


def glance(rows: list[Row], compared: list[Comparison]) -> list[str]:
    """Write what is to be seen first, before every row by itself."""
    return [
        "## At a glance",
        "",
        *papers_glance.minute(rows, compared),
        *papers_glance.verdicts(compared),
        "The same network over each algebra, which leaves about 1/n of the weights between the word table and the head",
        "(more of a PHM with a large n; `attention only` leaves the rest real). Fewer bits are better, BLEU is without a",
        "beam; on `trec` the networks read complex-order embeddings. Transformers have dot scores unless `product` is",
        "said. Bold differs from the real network by more than chance; a cell without ± has one seed, and is not judged",
        "unless over folds.",
        "",
        *papers_glance.algebras(rows),
        *word_order(rows, compared),
    ]


def word_order(rows: list[Row], compared: list[Comparison]) -> list[str]:
    """Write what Table 2 of Wang et al. comes to in both settings."""
    first, closer = ([row for row in rows if row.setting == setting] for setting in ("", CLOSER))
    if not papers_glance.whole_cells(closer):
        return []
    why = (
        " Why the complex rows of the Transformer fall there was asked on TREC alone: [causes](#causes)."
        if causes(rows)
        else ""
    )
    return [
        "Word order: mean test accuracy over data sets by what tells places apart, in brackets what Wang et al. (2020,",
        "Table 2) printed for the same sets (LSTM, CNN and FastText with word2vec, ours without). In the setting closer",
        "to the paper, complex-order's frequencies start from N(0, 1), not at 10000^(-d/D); the two complex rows of the",
        "Transformer have batch norm, not layer norm; FastText sums its words, and does not average them. There LSTM, CNN",
        "and FastText have words of 300 channels, not of 128 or 256, complex rows with twice the weights of the real",
        "ones, not half of them, and sines and cosines, up to 1, beside words of 0.1 that are not multiplied by",
        "sqrt(dim). The rest is the same.",
        "",
        *papers_glance.order(rows),
        f"In the first setting, {papers_glance.first_places(first)}",
        f"Closer to the paper, {papers_glance.first_places(closer)} {papers_glance.leads(compared)}{why}",
        papers_glance.near_guessing(closer),
        "",
    ]


JUDGED = """\
## How it is judged

A difference is *beyond chance* if Welch's t-test over seeds finds it (p < 0.05) and it is more than the size of the
test set explains (1.96 standard errors; not asked of BLEU and bits per character, which have no such bound). Rows
over the same folds are compared fold by fold, with one seed too, by Student's t-test with the variance of Nadeau and
Bengio (2003) in place of Welch's: it allows for the training rows that folds share, which a plain paired test does
not. Other pairs with a row of one seed are not judged; where most are such pairs there are *too few seeds*. A table's
sets of one network share a verdict if more than three of them are configured, run or not. Pairs beyond chance are
counted by kind, as printed and the other way round; a kind is *more than chance gives* if as many would come by
chance in at most one table of twenty, were the pairs independent. An order is *not decided* if neither kind is,
*mixed* if both are, *contradicted* if pairs the other way round are, *holds in part* if pairs as printed are, and
*holds* if these are all pairs. *Leads smaller*: more printed leads than chance explains are smaller here or the other
way round, taking each printed figure for one run, or for as many folds, with the spread and the test found here; a
setting that differs, or a row that is better here than in print, may be why. Where print calls the leads of one row
significant, only its pairs are judged; of other printed orders no spread is known, and they may be chance themselves.
BLEU is judged with the beam, where all rows have it.
""".splitlines()


def absent(rows: Iterable[Row]) -> list[str]:
    """Write what is in print and not here, and which configurations were not run."""
    text = ["## Not here, and why", "", "| in print | why it is not here |", "|---|---|"]
    text += [f"| {place} | {why} |" for place, why in ABSENT]
    text += ["", "Times in print (Wang et al. 2020, Figure 2; Zhang et al. 2021, Table 3) are measured on [speed](speed.md)."]
    waiting: dict[str, list[bool]] = {}
    for row in rows:
        waiting.setdefault(f"{row.paper}/{row.sweep}", []).append(not row.runs)
    said = [
        f"[{file}](../configs/papers/{file}.yaml) {sum(them)} of {len(them)}" for file, them in waiting.items() if any(them)
    ]
    return [*text, "", f"Rows that are configured and not run: {', '.join(said)}.", ""] if said else [*text, ""]


def head(rows: Iterable[Row]) -> list[str]:
    """Write how to read the page."""
    run = [row for row in rows if row.runs]
    runs = [one for row in run for one in row.runs]
    dates = sorted({one["machine"]["date"] for one in runs})
    where, counts = runs[-1]["machine"], [len(row.runs) for row in run]
    processors = " or ".join(sorted({one["machine"]["processor"] for one in runs}))
    traced = sum("chosen" in one for one in runs)
    return [
        "# The papers' systems, measured",
        "",
        "The name of a row leads to the file of its sweep; `zoo sweep FILE --only 'ROW-*'` repeats the row. Test",
        "figures are of the epoch that validation chose: the mean over seeds, their standard deviation behind ±, and each seed",
        "in brackets. What differs from the paper stands under each table, by number.",
        "",
        f"Of {len(run)} rows {sum(count >= 3 for count in counts)} have three seeds and {counts.count(1)} only one.",
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {where['cores']} cores of {processors}, "
        f"torch {where['torch']}; made by `python -m benchmarks.papers`.",
        "The files behind the numbers of seeds hold every figure, versions and the digest of the data; of",
        f"{len(runs):,} runs {traced} also name the commit, the chosen epoch and its validation figure, which older ones do",
        "not. Time is not told: the runs shared their machine. Older rows over an algebra do not all repeat to the last",
        "digit: kernels and attention have been rewritten since, to the same values up to rounding.",
        "",
    ]


def write(page: Path = PAGE, results: Path = RESULTS, configs: Path = CONFIGS) -> None:
    """Write the page."""
    rows = read_all(configs, results)
    if not any(row.runs for row in rows):
        return
    compared = comparisons(rows)
    papers = [paper for paper in SHORT if any(row.runs for row in rows if row.paper == paper)]
    body = [
        text
        for paper in papers
        for text in [*section(paper, rows, compared), *(sensitivity(results) if paper == "complex_order" else [])]
    ]
    text = [*head(rows), *glance(rows, compared), *JUDGED, "", *absent(rows), *body, *rates(rows)]
    page.write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
