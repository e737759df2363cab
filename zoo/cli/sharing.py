"""``zoo pull`` and ``zoo list checkpoints``: trained models of others; torch is not imported."""

import sys
from shlex import quote
from typing import Any

from zoo.checkpoint.card import number
from zoo.checkpoint.manifest import read_manifest, verify
from zoo.cli.commands import show
from zoo.cli.parser import Parser
from zoo.errors import InputError

SOURCE = "a name of zoo list checkpoints, hf:owner/name@revision, https://HOST/FOLDER, or file:FOLDER"


def make_parser(command: str) -> Parser:
    """Return the parser of the command."""
    parser = Parser(command, "Fetch a trained model into the cache and check every file of it.")
    return parser.positional("source", SOURCE).switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Fetch a model, and print where it is and what it can do."""
    show(pull(values["source"]), values["json"], print_pulled)
    return 0


def pull(source: str) -> dict[str, Any]:
    """Fetch a model and return its folder, bytes and metrics."""
    from zoo.hub.sources import locate

    folder = locate(source)
    folder = folder if (folder / "manifest.json").exists() else folder / "model"
    if not folder.is_dir():
        raise InputError(f"there is no model '{source}': give {SOURCE}")
    sizes = [record["size"] for record in verify(folder).values()]
    metrics = read_manifest(folder).get("metrics") or {}
    return {"source": source, "folder": str(folder), "files": len(sizes), "bytes": sum(sizes), "metrics": metrics}


def print_pulled(made: dict[str, Any]) -> None:
    """Say what was fetched and what to try."""
    metrics = "".join(f"; test {name} {number(value)}" for name, value in made["metrics"].items())
    print(f"{made['source']}: {made['files']} files, {made['bytes']:,} bytes, each as its manifest says{metrics}")
    name = quote(made["source"])
    print(f"in {made['folder']}\n\nnext:\n  zoo verify {name}  # rebuild its network\n  zoo test {name}  # measure it")


def list_checkpoints(as_json: bool) -> int:
    """Print the checkpoints of all catalogues."""
    from zoo.hub.catalogue import entries

    releases, problems = entries()
    for problem in problems:
        print(f"zoo: {problem}", file=sys.stderr)
    rows = [{"name": one.name, "catalogue": one.origin, **one.facts} for one in releases]
    show(rows, as_json, lambda _: print_checkpoints(rows))
    return 0


def print_checkpoints(rows: list[dict[str, Any]]) -> None:
    """Print one checkpoint a line: specs, data, its first metric, parameters beside the real network, bytes."""
    from zoo.report import plain_console, plain_table

    if not rows:
        print("checkpoints: none in the installed catalogues; ZOO_CATALOGUE=URL names one of a web server")
        return
    table = plain_table("checkpoint", "algebra", "data", "test", "parameters", "of the real", "bytes", "licence", "from")
    for column in table.columns[1:3]:
        column.justify = "left"
    for row in rows:
        counts, metrics = row.get("parameters") or {}, row.get("metrics") or {}
        total, twin = counts.get("total"), counts.get("real_twin")
        best = next((f"{name} {number(value)}" for name, value in metrics.items() if name != "loss"), "")
        share = f"{total / twin:.1%}" if total and twin else ""
        origin = "" if row["catalogue"] == "hypercomplex-zoo" else row["catalogue"]
        cells = (row.get("algebra"), row.get("data"), best, f"{total:,}" if total else "", share, f"{row['bytes']:,}")
        table.add_row(row["name"], *map(str, cells), str(row.get("license") or ""), origin)
    plain_console().print(table)
    print("next:\n  zoo predict NAME INPUT  # fetched, checked and used; zoo pull NAME only fetches")
