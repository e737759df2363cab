"""Write docs/reliability.md from the results of the long version."""

import json
from pathlib import Path
from typing import Any

from benchmarks import machine

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"

HEAD = """# Reliability

Made by `python -m tests.faults` from `benchmarks/results/reliability.json`; do not edit. The test suite contains a short
version of every section. [training.md](training.md) describes the guarantees and how to resume a run.
"""
TITLES = {
    "flips": "Damaged files",
    "hostile": "Untrusted data and configurations",
    "commands": "Invalid command lines",
    "ranks": "Lost processes",
    "disk": "Disks and folders",
    "kills": "Killed runs",
    "lottery": "Killed lottery experiments",
}
TEXTS = {
    "flips": "Random bits are flipped in every file of finished and killed runs; files are truncated, zeroed or "
    "exchanged. The damage must be detected and the file named. A killed run must finish, or be refused in one "
    "line.",
    "hostile": "Files, configurations and model folders crafted to execute code, exhaust memory or hang. Each must be "
    "refused in one line or be harmless.",
    "commands": "Valid command lines and configuration files with one mistake. Expected: exit code 2, at most three "
    "lines, no traceback.",
    "ranks": "One of two processes is killed, raises, hangs or is terminated, before the process group exists or during "
    "training. If Lightning or torchrun started them, the job must end within the timeout plus 15 s, with a "
    "nonzero exit code and no process left; torchrun waits another 30 s between SIGTERM and SIGKILL for a "
    "process that hangs. Without a launcher the other process must fail within the timeout plus 15 s. The "
    "resumed run must equal an uninterrupted one.",
    "disk": "A failing run must print one clear line, and resume from its last checkpoint to the same weights.",
    "kills": "Runs are killed (kill -9) at a random time or before a random file operation, and resumed. Weights and "
    "metrics.csv must equal those of an uninterrupted run, bit for bit.",
    "lottery": "`zoo lottery` with four rounds, and three of a control arm, is killed in the same ways and resumed. "
    "Weights and metrics of all rounds, masks, rewind point and lottery.json (except for seconds) must equal "
    "those of an uninterrupted experiment.",
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


def flips(found: dict[str, Any]) -> str:
    rows = {name: row for name, row in found.items() if isinstance(row, dict) and "tried" in row}
    missed = [f"{name}: {each}" for name, row in rows.items() for each in row["missed"]]
    lines = [[name, row["tried"], row["noticed"]] for name, row in rows.items()]
    return table(["damage", "tried", "detected"], lines) + listed(missed, "Not detected")


def hostile(found: dict[str, Any]) -> str:
    columns = [part for part in (found, found.get("models")) if part]
    rows = [
        ["tried", *(part["tried"] for part in columns)],
        ["refused in one line", *(part["refused"] for part in columns)],
        ["accepted and harmless", *(part.get("harmless", 0) for part in columns)],
        ["code was executed", *(part["executed"] for part in columns)],
        ["took less than 1 s of CPU time", *(part["within_a_second"] for part in columns)],
        ["slowest", *(f"{part['slowest'][1]} s: {part['slowest'][0]}" for part in columns)],
        [
            "most memory beyond twice the file size",
            *(f"{part['largest'][1] / 2**20:.0f} MiB: {part['largest'][0]}" for part in columns),
        ],
    ]
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


def disk(found: dict[str, Any]) -> str:
    rows = {name: row for name, row in found.items() if isinstance(row, dict) and "tried" in row}
    wrong = [f"{name}, {each}" for name, row in rows.items() for each in row["wrong"]]
    lines = [[name, row["tried"], row["tried"] - len(row["wrong"])] for name, row in rows.items()]
    return table(["fault", "tried", "passed"], lines) + listed(wrong, "Failed")


def kills(found: dict[str, Any]) -> str:
    rows = []
    for name, (equal, tried) in found["cases"].items():
        kind, workers, ranks = name.split("-")
        rows.append([kind, workers, ranks, f"{equal} of {tried}"])
    stages = ", ".join(f"{count} {stage}" for stage, count in found["stages"].items())
    head = f"{found['equal']} of {found['tried']} are equal. Killed: {stages}."
    return f"{head}\n\n{table(['data', 'loader workers', 'ranks', 'equal'], rows)}{listed(found['wrong'], 'Not equal')}"


def lottery(found: dict[str, Any]) -> str:
    stages = ", ".join(f"{count} {stage}" for stage, count in found["stages"].items())
    return f"{found['equal']} of {found['tried']} are equal. Killed: {stages}.{listed(found['wrong'], 'Not equal')}"


BODIES = {"flips": flips, "hostile": hostile, "commands": commands, "ranks": ranks, "disk": disk, "kills": kills}
BODIES["lottery"] = lottery
