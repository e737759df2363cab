"""``zoo pull``, ``push``, ``publish`` and ``list checkpoints``, without importing torch."""

import json
import sys
from pathlib import Path
from shlex import quote
from typing import Any

from zoo.checkpoint.card import number
from zoo.checkpoint.manifest import find, read_manifest, verify
from zoo.cli.commands import quiet, show
from zoo.cli.parser import Parser
from zoo.errors import InputError

RUN = "a run (runs/NAME) or model folder"
SOURCE = "a name of zoo list checkpoints, hf:owner/name@revision, https://HOST/FOLDER, or file:FOLDER"


def make_parser(command: str) -> Parser:
    """Return the parser of a command."""
    if command == "pull":
        parser = Parser(command, "Download a trained model to the cache and verify it.")
        return parser.positional("source", SOURCE).switch("--json", "print JSON")
    if command == "push":
        parser = Parser(command, "Upload a trained model, with its card, to the Hugging Face Hub (or to HF_ENDPOINT).")
        parser.positional("run", RUN).positional("to", "hf:owner/name or hf:owner/name@branch; created if it does not exist")
        parser.switch("--private", "make a new repository private")
    else:
        parser = Parser(command, "Write a release folder of a trained model and its catalogue entry.").positional("run", RUN)
        parser.positional("repeats", "runs of the same configuration with other seeds; the card reports the spread", nargs="*")
        parser.value("--to", "folder of releases with a catalogue.json, for any web server; or hf:owner/name")
        parser.value("--name", "name in the catalogue; by default the name of the run folder")
    parser.value("--license", "licence of the weights, as an identifier of the Hub: apache-2.0, mit, cc-by-4.0")
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Pull, push or publish a model, and print the result."""
    as_json = values.pop("json")
    if command == "pull":
        return show(pull(values["source"]), as_json, print_pulled)
    from zoo.hub import release

    quiet()
    if command == "push":
        return show(release.push(values.pop("run"), **values), as_json, print_pushed)
    if not values["to"]:
        raise InputError("missing --to: use --to FOLDER or --to hf:OWNER/NAME", code="missing")
    return show(release.publish(values.pop("run"), **values), as_json, print_published)


def pull(source: str) -> dict[str, Any]:
    """Download a model and return its folder, size and metrics."""
    from zoo.hub.sources import locate

    folder = find(locate(source))
    sizes = [record["size"] for record in verify(folder).values()]
    metrics = read_manifest(folder).get("metrics") or {}
    return {"source": source, "folder": str(folder), "files": len(sizes), "bytes": sum(sizes), "metrics": metrics}


def print_pulled(result: dict[str, Any]) -> None:
    """Print the size and folder of a downloaded model, and the next commands."""
    metrics = "".join(f"; test {name} {number(value)}" for name, value in result["metrics"].items())
    print(f"{result['source']}: {result['files']} files, {result['bytes']:,} bytes, verified against the manifest{metrics}")
    name = quote(result["source"])
    print(f"in {result['folder']}\n\nnext:\n  zoo verify {name}  # rebuild its network\n  zoo test {name}  # measure it")


def print_pushed(result: dict[str, Any]) -> None:
    """Print the source of an uploaded model, and the next commands."""
    source = quote(result["source"])
    print(f"pushed: {result['source']}\n\nnext:\n  zoo pull {source}\n  zoo test {source}")


def print_published(result: dict[str, Any]) -> None:
    """Print the location of a release, and the next commands."""
    if result["catalogue"] is None:
        print(f"pushed: {result['source']}; the entry for a catalogue.json:")
        print(json.dumps({result["name"]: result["entry"]}, indent=2))
        return
    folder, name = quote(str(Path(result["catalogue"]).parent)), quote(result["name"])
    print(f"{result['source']}: {result['entry']['bytes']:,} bytes, and in {result['catalogue']}\n\nnext:")
    print(f"  ZOO_CATALOGUE={folder} zoo test {name}")
    print(f"  python -m http.server -d {folder}  # then, elsewhere: ZOO_CATALOGUE=http://HOST:8000 zoo pull {name}")


def list_checkpoints(as_json: bool) -> int:
    """Print the checkpoints of all catalogues."""
    from zoo.hub.catalogue import entries

    releases, problems = entries()
    for problem in problems:
        print(f"zoo: {problem}", file=sys.stderr)
    rows = [{"name": release.name, "catalogue": release.origin, **release.facts} for release in releases]
    return show(rows, as_json, lambda _: print_checkpoints(rows))


def print_checkpoints(rows: list[dict[str, Any]]) -> None:
    """Print a table with one checkpoint per line."""
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
