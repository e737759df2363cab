"""Write docs/reliability.md from the results of the long version."""

import json
from pathlib import Path
from typing import Any

from benchmarks import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"

HEAD = """# What a run survives

Made by `python -m tests.faults` from `benchmarks/results/reliability.json`; do not edit. The short version of every section is
among the tests. What is promised, and how to resume a run, is in [training.md](training.md).
"""
TITLES = {
    "flips": "Damaged files",
    "hostile": "Data and configurations from strangers",
    "commands": "Wrong command lines",
    "ranks": "Lost processes",
    "disk": "Disks and folders",
    "kills": "Killed runs",
    "lottery": "Killed experiments with lottery tickets",
}
TEXTS = {
    "flips": "Bits flip in every file of a finished run and of a run that was killed; files are cut short, zeroed or swapped. "
    "Each must be noticed and the file named; a killed run must finish, or be refused in one line.",
    "hostile": "Files, configurations and model folders that are made to run something, to fill the memory or to hang; each "
    "must be refused in one line, or be harmless.",
    "commands": "Valid command lines and configuration files with one mistake: exit code 2, at most three lines, no traceback.",
    "ranks": "One of two processes is killed, fails, hangs or is terminated, before the two have met or in training. Started "
    "by Lightning or torchrun, the whole job must be over within the timeout and 15 s, with another exit code than 0 and no "
    "process left; torchrun leaves a process that hangs 30 s more between SIGTERM and SIGKILL. Without a launcher the other "
    "process must fail by itself within the timeout and 15 s. The resumed run must be the undisturbed one.",
    "disk": "Where a run fails, it must say so in a clear line, and go on from its last good state to the same weights.",
    "kills": "Runs are killed (kill -9) at a random time or before a random change of a file, and resumed; weights and "
    "metrics.csv must be those of the undisturbed run, bit for bit.",
    "lottery": "`zoo lottery` with four rounds and three of a control arm is killed in the same ways, and resumed; weights and "
    "metrics of all rounds, masks, rewind point and lottery.json (apart from seconds) must be those of the undisturbed one.",
}


def write() -> None:
    """Write the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    parts = [HEAD]
    for name, title in TITLES.items():
        if name in results:
            parts.append(f"## {title}\n\n{TEXTS[name]}\n\n{BODIES[name](results[name])}\n\n{made(results[name])}\n")
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def made(found: dict[str, Any]) -> str:
    """Say when and on what a section was run."""
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
    """List what went wrong."""
    return "\n".join([f"\n{what}:\n", *(f"- `{' '.join(each.replace('`', ' ').split())}`" for each in wrong)]) if wrong else ""


def flips(found: dict[str, Any]) -> str:
    rows = {name: row for name, row in found.items() if isinstance(row, dict) and "tried" in row}
    missed = [f"{name}: {each}" for name, row in rows.items() for each in row["missed"]]
    lines = [[name, row["tried"], row["noticed"]] for name, row in rows.items()]
    return table(["damage", "tried", "noticed"], lines) + listed(missed, "Not noticed")


def hostile(found: dict[str, Any]) -> str:
    columns = [part for part in (found, found.get("models")) if part]
    rows = [
        ["tried", *(part["tried"] for part in columns)],
        ["refused in one line", *(part["refused"] for part in columns)],
        ["read, and harmless", *(part.get("harmless", 0) for part in columns)],
        ["something was run", *(part["executed"] for part in columns)],
        ["within 1 s of processor time", *(part["within_a_second"] for part in columns)],
        ["slowest", *(f"{part['slowest'][1]} s: {part['slowest'][0]}" for part in columns)],
        [
            "most memory beyond twice the files",
            *(f"{part['largest'][1] / 2**20:.0f} MiB: {part['largest'][0]}" for part in columns),
        ],
    ]
    wrong = [each for part in columns for each in part["wrong"]]
    return table(["", "data and configurations", "model folders"][: 1 + len(columns)], rows) + listed(wrong, "Not refused")


def commands(found: dict[str, Any]) -> str:
    rows = [["refused", f"{found['refused']} of {found['tried']}"], ["valid by chance, beside those", found["valid"]]]
    return table(["", ""], rows) + listed(found["wrong"], "Not refused")


def ranks(found: dict[str, Any]) -> str:
    names = ("launcher", "when", "how", "rank", "codes", "seconds", "resumed")
    rows = [[*(row[name] for name in names), "yes" if row["fine"] else "**no**"] for row in found["rows"]]
    head = ["launcher", "when", "what", "rank", "exit codes", "seconds until the end", "resumed run", "as promised"]
    return f"Timeout {found['timeout']} s.\n\n{table(head, rows)}"


def disk(found: dict[str, Any]) -> str:
    rows = {name: row for name, row in found.items() if isinstance(row, dict) and "tried" in row}
    wrong = [f"{name}, {each}" for name, row in rows.items() for each in row["wrong"]]
    lines = [[name, row["tried"], row["tried"] - len(row["wrong"])] for name, row in rows.items()]
    return table(["what happens", "tried", "as promised"], lines) + listed(wrong, "Not as promised")


def kills(found: dict[str, Any]) -> str:
    rows = []
    for name, (equal, tried) in found["cases"].items():
        kind, workers, ranks = name.split("-")
        rows.append([kind, workers, ranks, f"{equal} of {tried}"])
    stages = ", ".join(f"{count} {stage}" for stage, count in found["stages"].items())
    head = f"{found['equal']} of {found['tried']} are equal. When they were killed: {stages}."
    return f"{head}\n\n{table(['data', 'loader workers', 'ranks', 'equal'], rows)}{listed(found['wrong'], 'Not equal')}"


def lottery(found: dict[str, Any]) -> str:
    stages = ", ".join(f"{count} {stage}" for stage, count in found["stages"].items())
    return (
        f"{found['equal']} of {found['tried']} are equal. When they were killed: {stages}.{listed(found['wrong'], 'Not equal')}"
    )


BODIES = {"flips": flips, "hostile": hostile, "commands": commands, "ranks": ranks, "disk": disk, "kills": kills}
BODIES["lottery"] = lottery
