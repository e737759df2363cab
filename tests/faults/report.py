"""Write the tables of docs/reliability.md from the results of the long version."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"


def write() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, found in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        text = machine.replace_table(text, f"<!-- table: {name} -->", f"{BODIES[name](found)}\n\n{made(found)}")
    PAGE.write_text(text, encoding="utf-8")


def made(found: dict[str, Any]) -> str:
    """Describe the date, machine and versions of a section."""
    where = found["machine"]
    versions = f"torch {where['torch']}, lightning {where['lightning']}"
    return (
        f"{where['date']}, {where['cores']} cores of {where['processor']}, {versions}, commit {machine.short(found['commit'])}."
    )


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([" ".join(str(cell).replace("|", "/").split())[:200] for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def listed(wrong: list[str], what: str) -> str:
    """Format a list of failures."""
    return "\n".join([f"\n{what}:\n", *(f"- `{' '.join(text.replace('`', ' ').split())}`" for text in wrong)]) if wrong else ""


def counts(found: dict[str, Any], head: list[str], passed: Callable[[dict[str, Any]], int], what: str, failures: str) -> str:
    """Format the sections with one row for each kind of fault."""
    rows = {name: row for name, row in found.items() if isinstance(row, dict) and "tried" in row}
    wrong = [f"{name}: {each}" for name, row in rows.items() for each in row[failures]]
    return table(head, [[name, row["tried"], passed(row)] for name, row in rows.items()]) + listed(wrong, what)


def flips(found: dict[str, Any]) -> str:
    return counts(found, ["damage", "tried", "detected"], lambda row: row["noticed"], "Not detected", "missed")


def disk(found: dict[str, Any]) -> str:
    head = ["fault", "tried", "passed"]
    return counts(found, head, lambda row: row["tried"] - len(row["wrong"]), "Failed", "wrong")


def hostile(found: dict[str, Any]) -> str:
    columns = [part for part in (found, found.get("models")) if part]
    lines: dict[str, Callable[[dict[str, Any]], object]] = {
        "tried": lambda part: part["tried"],
        "refused in one line": lambda part: part["refused"],
        "accepted and harmless": lambda part: part.get("harmless", 0),
        "code was executed": lambda part: part["executed"],
        "took less than 1 s of CPU time": lambda part: part["within_a_second"],
        "slowest": lambda part: f"{part['slowest'][1]} s: {part['slowest'][0]}",
        "most memory beyond twice the file size": lambda part: f"{part['largest'][1] / 2**20:.0f} MiB: {part['largest'][0]}",
    }
    rows = [[name, *map(value, columns)] for name, value in lines.items()]
    wrong = [each for part in columns for each in part["wrong"]]
    return table(["", "data and configurations", "model folders"][: 1 + len(columns)], rows) + listed(wrong, "Not refused")


def commands(found: dict[str, Any]) -> str:
    rows = [["refused", f"{found['refused']} of {found['tried']}"], ["valid by chance (not counted)", found["valid"]]]
    return table(["", ""], rows) + listed(found["wrong"], "Not refused")


def ranks(found: dict[str, Any]) -> str:
    names = ("launcher", "when", "how", "rank", "codes", "seconds", "resumed")
    rows = [[*(row[name] for name in names), "yes" if row["fine"] else "**no**"] for row in found["rows"]]
    head = ["launcher", "when", "fault", "rank", "exit codes", "seconds", "resumed run", "passed"]
    return f"Timeout {found['timeout']} s.\n\n{table(head, rows)}"


def lottery(found: dict[str, Any]) -> str:
    stages = ", ".join(f"{count} {stage}" for stage, count in found["stages"].items())
    return f"{found['equal']} of {found['tried']} are equal. Killed: {stages}.{listed(found['wrong'], 'Not equal')}"


def kills(found: dict[str, Any]) -> str:
    rows = [[*name.split("-"), f"{equal} of {tried}"] for name, (equal, tried) in found["cases"].items()]
    text = lottery(found | {"wrong": []})
    return f"{text}\n\n{table(['data', 'loader workers', 'ranks', 'equal'], rows)}{listed(found['wrong'], 'Not equal')}"


BODIES = {"flips": flips, "hostile": hostile, "commands": commands, "ranks": ranks, "disk": disk, "kills": kills}
BODIES["lottery"] = lottery
