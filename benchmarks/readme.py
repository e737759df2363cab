"""Write the table of results on digits into README.md and docs/index.md: ``python -m benchmarks.readme``."""

import json
from statistics import mean
from typing import Any

from benchmarks.machine import ROOT, replace_table

PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
BEGIN = "<!-- table: benchmarks/results/digits.json -->"


def table(results: dict[str, Any]) -> str:
    """Format results as a Markdown table with one line per network."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in results["rows"]:
        name = f"`{row['algebra']}`" if row["backbone"] == "vit" else f"`{row['algebra']}`, `{row['backbone']}`"
        rows.setdefault(name, []).append(row)
    lines = ["| `--algebra` | parameters | of the real network | test accuracy, mean (each seed) |", "|---|---:|---:|---|"]
    twin = max(row["parameters"]["real_twin"] for row in results["rows"])
    for name, runs in rows.items():
        parameters = runs[0]["parameters"]
        scores = [run["metrics"]["accuracy"] for run in runs]
        share = parameters["total"] / twin
        each = ", ".join(f"{score:.3f}" for score in scores)
        lines.append(f"| {name} | {parameters['total']:,} | {share:.1%} | **{mean(scores):.3f}** ({each}) |")
    return "\n".join([*lines, "", caption(results)])


def caption(results: dict[str, Any]) -> str:
    """Describe the measurement below the table."""
    where, rows = results["machine"], results["rows"]
    seconds = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    device = where["processor"] if where["device"] == "cpu" else where["device"]
    dates = " to ".join(sorted({min(row["date"] for row in rows), max(row["date"] for row in rows)}))
    seeds = len({row["seed"] for row in rows})
    return (
        f"`zoo fit --backbone vit --algebra ...`: 360 held-out digits, {seeds} seeds, {rows[0]['epochs']} epochs, "
        f"{seconds:.0f} s a run (median) on {where['cores']} cores of {device}; {dates}, torch {where['torch']}, "
        f"lightning {where['lightning']}, timm {where['timm']}. Made by `python -m benchmarks.digits`."
    )


def update() -> None:
    """Update the table on all pages."""
    results = json.loads((ROOT / "benchmarks" / "results" / "digits.json").read_text(encoding="utf-8"))
    for path in PAGES:
        text = replace_table(path.read_text(encoding="utf-8"), BEGIN, table(results))
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    update()
