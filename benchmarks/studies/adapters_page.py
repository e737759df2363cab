"""Write docs/adapters.md from the results of `benchmarks.studies.adapters`: ``python -m benchmarks.studies.adapters_page``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo_reports.page import Table
from zoo_reports.statistics import Difference, Score, compare

from benchmarks.machine import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "adapters.json"
DETAILS = RESULTS.with_suffix(".csv")
PAGE, TEMPLATE = ROOT / "docs" / "adapters.md", Path(__file__).with_name("adapters_template.md")
TITLES = {"trec": "TREC, accuracy", "shakespeare": "Tiny Shakespeare, loss"}
NAMES = {
    "full": "full fine-tuning",
    "lora": "LoRA",
    "lokr": "LoKr",
    "c3a": "C3A",
    "compacter": "Compacter",
    "real": "`real`",
    "quaternion": "`quaternion`",
    "octonion": "`octonion`",
    "phm-2": "`phm(n=2, shared=True)`",
    "phm-4": "`phm(n=4, shared=True)`",
    "phm-8": "`phm(n=8, shared=True)`",
    "cyclic-4": "`cyclic(n=4)`",
}
PEFT = ("lora", "lokr", "c3a")
OURS = ("quaternion", "octonion", "phm-2", "phm-4", "phm-8", "cyclic-4")
COSTS = {"`zoo.peft`": OURS, "LoKr": ("lokr",), "C3A": ("c3a",), "Compacter": ("compacter",)}
"""Methods whose costs are compared with LoRA's."""
FULL_BUDGET = 2
"""The budget with which the rows of full fine-tuning are stored."""
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


def cells(key: Key, runs: Mapping[Key, Sequence[Row]]) -> list[str]:
    """Format the result of a method, and its difference from PEFT."""
    result, is_full = score(key, runs), key[2] == "full"
    text = f"{result.mean:.3f}"
    if is_full or key[2] in PEFT:
        return [text, ""]
    found = difference(key, runs)
    against = f"{found.estimate:+.3f} ± {found.interval:.3f}"
    return [text, against if found.verdict == "not decided" else f"**{against}**"]


def table(budget: int, runs: Mapping[Key, Sequence[Row]]) -> Table:
    """Tabulate the methods with a budget, and full fine-tuning."""
    cases = [case for case in TITLES if (case, budget) in groups(runs)]
    lines = []
    for method, name in NAMES.items():
        keys = [(case, FULL_BUDGET if method == "full" else budget, method) for case in cases]
        lines.append([name, *(cell for key in keys for cell in cells(key, runs))])
    head = [text for case in cases for text in (TITLES[case], "against PEFT")]
    return Table(f"Budget {budget}", ["method", *head], lines)


def details(runs: Mapping[Key, Sequence[Row]], stored: Sequence[Row]) -> Table:
    """Tabulate all finished methods with their weights, rates and costs."""
    by_key = {(row["case"], row["method"]): row for row in stored}
    lines = []
    for key, found in runs.items():
        cost, result = by_key.get((key[0], key[2]), {}), score(key, runs)
        figures = [found[0]["weights"], 4 * found[0]["weights"], found[0]["rate"], result.mean, result.interval]
        lines.append([key[0], str(key[1]), key[2], *(f"{value:.6g}" for value in figures)])
        lines[-1] += ["" if cost.get(name) is None else f"{cost[name]:.4g}" for name in ("ms", "bytes", "merge_error")]
    head = [
        "case",
        "budget",
        "method",
        "weights",
        "bytes",
        "rate",
        "test",
        "interval",
        "ms a step",
        "bytes of a step",
        "merge error",
    ]
    return Table("", head, lines)


def answer(runs: Mapping[Key, Sequence[Row]]) -> str:
    """Count the verdicts on our adapters."""
    texts = []
    for case, budget in groups(runs):
        verdicts = {name: difference((case, budget, name), runs).verdict for name in OURS}
        counts = {word: [NAMES[name] for name, found in verdicts.items() if found == word] for word in ("ahead", "behind")}
        parts = [f"{', '.join(names) or 'none'} {word}" for word, names in counts.items()]
        rest = len(OURS) - sum(map(len, counts.values()))
        parts += [f"{rest} of {len(OURS)} not decided"] if rest else []
        best = NAMES[best_of_peft(case, budget, runs)[2]]
        texts.append(f"- {TITLES[case].split(',')[0]}, budget {budget}, against {best}: {'; '.join(parts)}.")
    return "\n".join(texts)


def costs(rows: Sequence[Row]) -> str:
    """Compare step times and memory with those of LoRA in one sentence."""
    by_key = {(row["case"], row["method"]): row for row in rows}
    cases = [case for case in TITLES if (case, "lora") in by_key]

    def span(methods: Sequence[str], name: str) -> str:
        ratios = sorted(by_key[case, method][name] / by_key[case, "lora"][name] for case in cases for method in methods)
        return f"{ratios[0]:.2f} to {ratios[-1]:.2f}"

    times, memory = (
        ", ".join(f"{label} {span(methods, name)}" for label, methods in COSTS.items()) for name in ("ms", "bytes")
    )
    error = max(row["merge_error"] or 0.0 for row in rows)
    text = f"Relative to LoRA, a training step takes the time {times}, and the memory {memory}."
    return f"{text} Merging changes an output by at most {error:.0e} of the largest."


def write(results: Mapping[str, Any], page: Path = PAGE, details_file: Path = DETAILS) -> None:
    """Write the page and the CSV file of all results."""
    runs = finished(results["rows"])
    done = groups(runs)
    budgets = sorted({budget for _, budget in done})
    missing = [str(budget) for budget in (1, 2, 4) if not all((case, budget) in done for case in TITLES)]
    tables = [table(budget, runs) for budget in budgets]
    text = TEMPLATE.read_text(encoding="utf-8").format(
        answer=answer(runs),
        tables="\n\n".join("\n".join([f"## {one.title}", "", *one.as_markdown()]) for one in tables),
        processor=results["processor"],
        costs=costs(results["costs"]),
        not_run=f"Not run: the budgets {' and '.join(missing)}." if missing else "",
    )
    page.write_text(text, encoding="utf-8")
    details_file.write_text(details(runs, results["costs"]).as_csv(), encoding="utf-8")


if __name__ == "__main__":
    write(json.loads(RESULTS.read_text(encoding="utf-8")))
