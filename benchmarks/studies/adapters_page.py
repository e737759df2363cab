"""Write docs/adapters.md from the results of `benchmarks.studies.adapters`: ``python -m benchmarks.studies.adapters_page``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo_reports.page import Table
from zoo_reports.statistics import Difference, Score, compare

from benchmarks.machine import ROOT
from zoo.atomic import write_text

RESULTS = ROOT / "benchmarks" / "results" / "adapters.json"
PAGE, TEMPLATE = ROOT / "docs" / "adapters.md", Path(__file__).with_name("adapters_template.md")
TITLES = {"trec": "TREC, test accuracy", "shakespeare": "Tiny Shakespeare, test loss in nats per character"}
NAMES = {
    "full": "full fine-tuning",
    "lora": "LoRA",
    "lokr": "LoKr",
    "c3a": "C3A",
    "compacter": "Compacter",
    "quaternion": "`quaternion`",
    "octonion": "`octonion`",
    "phm-2": "`phm(n=2, shared=True)`",
    "phm-4": "`phm(n=4, shared=True)`",
    "phm-8": "`phm(n=8, shared=True)`",
    "cyclic-4": "`cyclic(n=4)`",
}
PEFT = ("lora", "lokr", "c3a")
OURS = ("quaternion", "octonion", "phm-2", "phm-4", "phm-8", "cyclic-4")
LOWER = ("shakespeare",)
"""Cases whose metric is a loss."""
SEEDS = 5

Row = Mapping[str, Any]
Key = tuple[str, int, str]
"""Case, budget and method."""


def finished(rows: Sequence[Row]) -> dict[Key, list[Row]]:
    """Return the runs at the rate of each method that has all its seeds."""
    found: dict[tuple[Key, float], list[Row]] = {}
    for row in rows:
        found.setdefault(((row["case"], row["budget"], row["method"]), row["rate"]), []).append(row)
    return {key: runs for (key, _), runs in found.items() if len(runs) == SEEDS}


def score(key: Key, runs: Mapping[Key, Sequence[Row]], split: str = "test") -> Score:
    """Return the results of a method."""
    return Score(tuple(row[split] for row in runs[key]))


def best_of_peft(case: str, budget: int, runs: Mapping[Key, Sequence[Row]]) -> Key:
    """Return the method of PEFT with the best mean validation result."""
    sign = -1 if case in LOWER else 1
    return max(((case, budget, name) for name in PEFT), key=lambda key: sign * score(key, runs, "validation").mean)


def difference(key: Key, runs: Mapping[Key, Sequence[Row]]) -> Difference:
    """Compare a method with the best one of PEFT."""
    found = compare(score(key, runs), score(best_of_peft(key[0], key[1], runs), runs), lower=key[0] in LOWER)
    if found is None:
        raise ValueError(f"{key}: one seed")
    return found


def groups(runs: Mapping[Key, Sequence[Row]]) -> list[tuple[str, int]]:
    """Return the cases and budgets of which every method is finished."""
    pairs = sorted({(case, budget) for case, budget, _ in runs}, key=lambda pair: (list(TITLES).index(pair[0]), pair[1]))
    return [(case, budget) for case, budget in pairs if all((case, budget, name) in runs for name in NAMES if name != "full")]


def table(case: str, budget: int, runs: Mapping[Key, Sequence[Row]]) -> Table:
    """Tabulate the methods of a case with a budget, and full fine-tuning."""
    full = [key for key in runs if key[0] == case and key[2] == "full"]
    lines = []
    for key in [*full, *((case, budget, name) for name in NAMES if name != "full")]:
        result, found = score(key, runs), difference((case, budget, key[2]), runs) if key not in full else None
        row = runs[key][0]
        against = f"{found.estimate:+.3f} ± {found.interval:.3f}, {found.verdict}" if found and key[2] not in PEFT else ""
        values = f"{result.mean:.3f} ± {result.interval:.3f}"
        lines.append(
            [NAMES[key[2]], f"{row['weights']:,}", f"{4 * row['weights'] / 1000:.0f}", f"{row['rate']:.2g}", values, against]
        )
    head = ["method", "weights", "kB", "rate", TITLES[case].split(", ")[1], "against PEFT"]
    return Table(f"{TITLES[case]}, budget {budget}", head, lines)


def answer(runs: Mapping[Key, Sequence[Row]]) -> str:
    """Count the verdicts on our adapters."""
    texts = []
    for case, budget in groups(runs):
        verdicts = {name: difference((case, budget, name), runs).verdict for name in OURS}
        counts = {word: [NAMES[name] for name, found in verdicts.items() if found == word] for word in ("ahead", "behind")}
        parts = [f"{', '.join(names)} {word}" for word, names in counts.items() if names]
        rest = len(OURS) - sum(map(len, counts.values()))
        parts += [f"{rest} of {len(OURS)} not decided"] if rest else []
        best = NAMES[best_of_peft(case, budget, runs)[2]]
        texts.append(f"- {TITLES[case].split(',')[0]}, budget {budget}, against {best}: {'; '.join(parts)}.")
    return "\n".join(texts)


def costs(rows: Sequence[Row]) -> Table:
    """Tabulate the costs relative to LoRA."""
    by_key = {(row["case"], row["method"]): row for row in rows}
    cases = [case for case in TITLES if (case, "lora") in by_key]
    lines = []
    for method, name in NAMES.items():
        cells = []
        for case in cases:
            row, lora = by_key[case, method], by_key[case, "lora"]
            cells += [f"{row['ms'] / lora['ms']:.2f}", f"{row['bytes'] / lora['bytes']:.2f}"]
        error = max((by_key[case, method]["merge_error"] or 0.0 for case in cases), default=0.0)
        lines.append([name, *cells, f"{error:.0e}" if error else ""])
    head = [f"{TITLES[case].split(',')[0]}, {what}" for case in cases for what in ("time", "memory")]
    return Table("", ["method", *head, "merging"], lines)


def write(results: Mapping[str, Any], page: Path = PAGE) -> None:
    """Write the page."""
    runs = finished(results["rows"])
    tables = [table(case, budget, runs) for case, budget in groups(runs)]
    done = {(case, budget) for case, budget in groups(runs)}
    missing = [
        f"{TITLES[case].split(',')[0]} with budget {budget}"
        for case in TITLES
        for budget in (1, 2, 4)
        if (case, budget) not in done
    ]
    text = TEMPLATE.read_text(encoding="utf-8").format(
        answer=answer(runs),
        tables="\n\n".join("\n".join([f"## {one.title}", "", *one.as_markdown()]) for one in tables),
        processor=results["processor"],
        costs="\n".join(costs(results["costs"]).as_markdown()),
        not_run=f"Not run: {'; '.join(missing)}." if missing else "",
    )
    write_text(page, text)


if __name__ == "__main__":
    write(json.loads(RESULTS.read_text(encoding="utf-8")))
