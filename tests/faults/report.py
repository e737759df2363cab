"""Write the table of docs/reliability.md from the results of the long version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zoo_reports.page import Table

from benchmarks import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"
RANKS = RESULTS.parent / "reliability_ranks.csv"
BEGIN = "<!-- table: benchmarks/results/reliability.json -->"


class Line(NamedTuple):
    """A kind of fault: how often it was tried, how often the outcome was right, and the failures."""

    fault: str
    tried: int
    passed: int
    wrong: list[str]


def write() -> None:
    """Write the table into the page, and the cases of lost processes as CSV."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(machine.replace_table(PAGE.read_text(encoding="utf-8"), BEGIN, table(results)), encoding="utf-8")
    RANKS.write_text(lost_processes(results["ranks"]).as_csv(), encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """Count the trials that ended as expected, tabulate all faults, and list the failures."""
    rows, wrong, tried, passed = [], [], 0, 0
    for name, found in results.items():
        made = f"{found['machine']['date']}, {machine.short(found['commit'])}"
        for line in lines(name, found):
            tried, passed = tried + line.tried, passed + line.passed
            rows.append([line.fault, str(line.tried), str(line.passed), made])
            wrong += [f"- {line.fault}: `{' '.join(text.replace('`', ' ').split())}`" for text in line.wrong]
    failures = ["", "Failed:", "", *wrong] if wrong else []
    answer = f"{passed:,} of {tried:,} trials ended as [expected](#what-is-expected)."
    return "\n".join([answer, "", *Table("", ["fault", "tried", "as expected", "date, commit"], rows).as_markdown(), *failures])


def lines(name: str, found: dict[str, Any]) -> Iterator[Line]:
    """Yield the lines of a section of the results."""
    if name in ("kills", "lottery"):
        fault = {"kills": "a run is killed", "lottery": "`zoo lottery` is killed"}[name]
        yield Line(fault, found["tried"], found["equal"], found["wrong"])
    elif name == "commands":
        yield Line("an invalid command line", found["tried"], found["refused"], found["wrong"])
    elif name == "hostile":
        for title, part in (("untrusted data and configurations", found), ("untrusted model folders", found.get("models"))):
            if part:
                yield Line(title, part["tried"], part["refused"] + part.get("harmless", 0), part["wrong"])
    elif name == "ranks":
        fine = [row["fine"] for row in found["rows"]]
        yield Line("one of two processes is lost", len(fine), sum(fine), [])
    else:
        for fault, row in found.items():
            if isinstance(row, dict) and "tried" in row:
                wrong = row.get("wrong", row.get("missed"))
                yield Line(fault, row["tried"], row.get("noticed", row["tried"] - len(wrong)), wrong)


def lost_processes(found: dict[str, Any]) -> Table:
    """Tabulate all cases of lost processes."""
    names = ("launcher", "when", "how", "rank", "codes", "seconds", "resumed")
    rows = [[*(str(row[name]) for name in names), "yes" if row["fine"] else "no"] for row in found["rows"]]
    return Table("", ["launcher", "when", "fault", "rank", "exit codes", "seconds", "resumed run", "passed"], rows)
