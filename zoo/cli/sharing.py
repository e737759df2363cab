"""``zoo pull``, ``push``, ``publish`` and ``list checkpoints``, without importing torch."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from zoo.checkpoint.card import number
from zoo.checkpoint.manifest import find, read_manifest, verify
from zoo.cli.result import Result
from zoo.errors import InputError


def pull(source: str) -> Result:
    """Download a trained model to the cache and verify it.

    Args:
        source: A name of zoo list checkpoints, hf:owner/name@revision, https://HOST/FOLDER, or file:FOLDER.
    """
    from zoo.hub.sources import locate

    folder, name = find(locate(source)), quote(source)
    sizes = [record["size"] for record in verify(folder).values()]
    metrics = read_manifest(folder).get("metrics") or {}
    measured = "".join(f"; test {name} {number(value)}" for name, value in metrics.items())
    text = f"{source}: {len(sizes)} files, {sum(sizes):,} bytes, verified against the manifest{measured}\nin {folder}\n\nnext:"
    text += f"\n  zoo verify {name}  # rebuild its network\n  zoo test {name}  # measure it"
    value = {"source": source, "folder": str(folder), "files": len(sizes), "bytes": sum(sizes), "metrics": metrics}
    return Result(value, text)


def push(run: str, to: str, *, private: bool = False, license: str | None = None) -> Result:
    """Upload a trained model, with its card, to the Hugging Face Hub (or to HF_ENDPOINT).

    Args:
        run: A run (runs/NAME) or model folder.
        to: hf:owner/name or hf:owner/name@branch; created if it does not exist.
        private: Make a new repository private.
        license: Licence of the weights, as an identifier of the Hub: apache-2.0, mit, cc-by-4.0.
    """
    from zoo.hub import release

    result = release.push(run, to, license=license, private=private)
    source = quote(result["source"])
    return Result(result, f"pushed: {result['source']}\n\nnext:\n  zoo pull {source}\n  zoo test {source}")


def publish(
    run: str,
    repeats: Sequence[str] = (),
    *,
    to: str | None = None,
    name: str | None = None,
    license: str | None = None,
) -> Result:
    """Write a release folder of a trained model and its catalogue entry.

    Args:
        run: A run (runs/NAME) or model folder.
        repeats: Runs of the same configuration with other seeds; the card reports the spread.
        to: Folder of releases with a catalogue.json, for any web server; or hf:owner/name.
        name: Name in the catalogue; by default the name of the run folder.
        license: Licence of the weights, as an identifier of the Hub: apache-2.0, mit, cc-by-4.0.
    """
    if not to:
        raise InputError("missing --to: use --to FOLDER or --to hf:OWNER/NAME", code="missing")
    from zoo.hub import release

    result = release.publish(run, to, name, license, repeats)
    if result["catalogue"] is None:
        entry = json.dumps({result["name"]: result["entry"]}, indent=2)
        return Result(result, f"pushed: {result['source']}; the entry for a catalogue.json:\n{entry}")
    folder, quoted = quote(str(Path(result["catalogue"]).parent)), quote(result["name"])
    text = f"{result['source']}: {result['entry']['bytes']:,} bytes, and in {result['catalogue']}\n\nnext:\n"
    text += f"  ZOO_CATALOGUE={folder} zoo test {quoted}\n"
    text += f"  python -m http.server -d {folder}  # then, elsewhere: ZOO_CATALOGUE=http://HOST:8000 zoo pull {quoted}"
    return Result(result, text)


def list_checkpoints() -> Result:
    """List the checkpoints of all catalogues."""
    from zoo.hub.catalogue import entries

    releases, problems = entries()
    for problem in problems:
        print(f"zoo: {problem}", file=sys.stderr)
    rows = [{"name": release.name, "catalogue": release.origin, **release.facts} for release in releases]
    return Result(rows, print_checkpoints)


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
