"""Write docs/papers.md from the measured rows: ``python -m benchmarks.papers``."""

import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import papers_glance

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "papers"
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
    "complex_order": "Encoding word order in complex embeddings (Wang et al. 2020)",
    "quaternion_nlp": "Lightweight and efficient neural NLP with quaternion networks (Tay et al. 2019)",
    "phm": "Beyond fully-connected layers with quaternions: PHM (Zhang et al. 2021)",
    "fraction": "Transformers at a Fraction (Mukhopadhyay et al. 2025)",
}


def rows_of(paper: str, results: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Read the measured rows of a paper by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((results / paper).glob("*.json"))}


def published(paper: str, name: str) -> str:
    """What the paper printed for a row, from the comment in its configuration."""
    config = ROOT / "configs" / "papers" / paper / f"{name}.yaml"
    found = re.search(r"^# published: (.*)$", config.read_text(encoding="utf-8"), re.MULTILINE) if config.exists() else None
    return found[1] if found else ""


def score(rows: list[dict[str, Any]]) -> str:
    """Show the test metrics: the mean, and each seed where there is more than one."""
    shown = []
    for name, form in SHOWN.items():
        title, form = form.rsplit(" ", 1)
        values = [row["metrics"][name] for row in rows if row["metrics"].get(name) is not None]
        if name == "perplexity" and values:  # of characters: everybody gives its logarithm, the loss
            title, form, values = "loss", "{:.3f} nats", [row["metrics"]["loss"] for row in rows]
        if values:
            each = f" ({', '.join(form.format(value).removesuffix(' nats') for value in values)})" if len(values) > 1 else ""
            folds = f" ± {rows[0]['std'][name]:.3f} over {len(rows[0]['folds'])} folds" if "std" in rows[0] else ""
            shown.append(f"{title} **{form.format(mean(values))}**{each}{folds}")
    beams = [row["beam"] for row in rows if "beam" in row]
    if beams:
        found = ", ".join(SHOWN[name].format(mean(beam[name] for beam in beams)) for name in ("exact_match", "bleu", "chrf"))
        shown.append(f"with a beam of {beams[0]['beam']} {found}")
    return "; ".join(shown)


def line(paper: str, name: str, stored: dict[str, Any]) -> str:
    """Write one row of the table."""
    config, rows = stored["config"], stored["rows"]
    parameters = rows[0]["parameters"]
    tables = parameters["embedding"]
    link = f"[{name}](../configs/papers/{paper}/{name}.yaml)"
    weights = f"{(parameters['total'] - tables) / 1000:,.0f}K"
    cells = [link, papers_glance.algebra(config), weights, f"{tables / 1000:,.0f}K", score(rows), published(paper, name)]
    return f"| {' | '.join(cells)} |"


def also(stored: dict[str, Any]) -> list[str]:
    """Write the other test sets of a row, mean accuracy over seeds."""
    rows = [row["also"] for row in stored["rows"] if "also" in row]
    return [f"{mean(row[spec]['accuracy'] for row in rows):.3f}" for spec in rows[0]] if rows else []


def section(paper: str, stored: dict[str, dict[str, Any]]) -> list[str]:
    """Write the part of a paper, one table for each data set."""
    lines = [f"## {PAPERS.get(paper, paper)}", ""]
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, row in stored.items():
        groups.setdefault(row["config"]["data"], {})[name] = row
    for data, group in groups.items():
        lines += [f"### `{data}`", "", "| row | algebra | weights | in word tables | test, ours | published |"]
        lines += ["|---|---|---:|---:|---|---|", *(line(paper, name, row) for name, row in group.items()), ""]
        lines += curves(group)
        others = {name: cells for name, row in group.items() if (cells := also(row))}
        if others:
            specs = group[next(iter(others))]["rows"][0]["also"]
            lines += ["Accuracy of the same models on other test sets:", ""]
            lines += papers_glance.table("row", [f"`{spec}`" for spec in specs], others)
    return lines


def curves(stored: dict[str, dict[str, Any]]) -> list[str]:
    """Write the validation figures that were kept step by step, mean over seeds, one line for each tenth of the steps."""
    kept = {name: [row["curve"] for row in found["rows"] if "curve" in row] for name, found in stored.items()}
    kept = {name: found for name, found in kept.items() if found}
    if not kept:
        return []
    steps = [step for step, _ in next(iter(kept.values()))[0]]
    every = max(1, len(steps) // 10)
    chosen = steps[every - 1 :: every]
    shown = {}
    for name, found in kept.items():
        values = {step: mean(dict(map(tuple, one))[step] for one in found) for step in chosen}
        shown[name] = [f"{values[step]:.3f}" for step in chosen]
    lines = ["Exact match on validation pairs against steps:", ""]
    lines += papers_glance.table("row", [f"{step:,}" for step in chosen], shown)
    return [*lines, "![exact match against steps](images/mlu_exact_match.png)", ""]


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


def glance(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Write what is to be seen first, before every row by itself."""
    printed = {name: published("complex_order", name) for name in found["complex_order"]}
    return [
        "## At a glance",
        "",
        "Means over seeds, and their standard deviation where there are several; the rows themselves are below.",
        "",
        "The same network over each algebra, which leaves 1/n of the weights between the word table and the head. Fewer bits",
        "are better; on `trec` the complex-order embedding is in front.",
        "",
        *papers_glance.algebras(found),
        "Word order: test accuracy by what tells places apart, the best bold; in brackets what Wang et al. (2020, Table 2)",
        "printed (LSTM, CNN and FastText with word2vec, ours without).",
        "",
        *papers_glance.order(found["complex_order"], printed),
    ]


def write(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Write the page."""
    found = {path.name: rows_of(path.name, results) for path in sorted(results.iterdir()) if path.is_dir()}
    if not any(found.values()):
        return
    machines = [row["machine"] for rows in found.values() for stored in rows.values() for row in stored["rows"]]
    where = machines[-1]
    dates = sorted({machine["date"] for machine in machines})
    seeds = [len(stored["rows"]) for rows in found.values() for stored in rows.values()]
    three = sum(count >= 3 for count in seeds)
    head = [
        "# The papers' systems, measured",
        "",
        "Every row is a configuration that `zoo fit -c FILE` repeats. Test figures are of the epoch that validation chose;",
        "several numbers in brackets are several seeds. What differs from a paper's setting is said in the configuration.",
        f"Of {len(seeds)} rows {three} have three seeds and {seeds.count(1)} only one, which tells nothing of the spread.",
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {where['cores']} cores of {where['processor']}, "
        f"torch {where['torch']}; made by `python -m benchmarks.papers`.",
        "",
    ]
    body = [
        text
        for paper, rows in found.items()
        for text in [*section(paper, rows), *(sensitivity(results) if paper == "complex_order" else [])]
    ]
    page.write_text("\n".join([*head, *glance(found), *body]).rstrip() + "\n", encoding="utf-8")
