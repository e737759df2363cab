"""``zoo list``: what is installed, read from package metadata without importing any plugin."""

import json
import shutil
from dataclasses import asdict

from zoo import registry
from zoo.cli.plain_parser import plain_parser
from zoo.errors import InputError


def run(command: str, argv: list[str]) -> int:
    """Print the installed plugins of one kind or of all."""
    parser = plain_parser(command, "List the installed algebras, backbones, data sets and so on.")
    parser.add_argument("kind", nargs="?", help=f"one of {', '.join(registry.GROUPS)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    if options.kind not in (None, *registry.GROUPS):
        raise InputError(f"unknown kind '{options.kind}': use {', '.join(registry.GROUPS)}")
    kinds = [options.kind] if options.kind else list(registry.GROUPS)
    rows = {kind: [describe(entry) for entry in registry.entries(kind)] for kind in kinds}
    if options.json:
        print(json.dumps(rows if options.kind is None else rows[options.kind], indent=2))
    else:
        print("\n\n".join(table(kind, found) for kind, found in rows.items() if found or options.kind))
    return 0


def describe(entry: registry.Entry) -> dict[str, str]:
    """One plugin as plain values."""
    return {**{key: str(value) for key, value in asdict(entry).items()}, "summary": registry.summary(entry)}


def table(kind: str, rows: list[dict[str, str]]) -> str:
    """Align names, summaries and, of strangers, the distribution; cut to the width of the terminal."""
    width = shutil.get_terminal_size((120, 24)).columns
    longest = max((len(row["name"]) for row in rows), default=0)
    lines = [kind]
    for row in rows:
        origin = "" if row["distribution"] == "hypercomplex-zoo" else f" [{row['distribution']} {row['version']}]"
        room = max(20, width - longest - 4 - len(origin))
        text = row["summary"] if len(row["summary"]) <= room else row["summary"][: room - 3] + "..."
        lines.append(f"  {row['name']:<{longest}}  {text}{origin}".rstrip())
    return "\n".join(lines if rows else [f"{kind}: none installed"])
