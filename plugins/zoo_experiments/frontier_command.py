"""``zoo frontier``: is an algebra better than a smaller real network? Networks at equal weights, each at its best rate."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from zoo.cli.commands import quiet, to_json
from zoo.cli.configuration import read_config
from zoo.cli.parser import Parser
from zoo.errors import InputError
from zoo.training.options import build
from zoo_experiments.options import Sweep, check_execution


def make_parser(command: str) -> Parser:
    """Return the parser of the command."""
    text = "Compare networks over algebras with real networks of the same number of weights, each at its best learning rate."
    parser = Parser(command, text, Sweep)
    return parser.positional("file", "YAML with base and the axes net, optimizer.lr and seed").switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Train what is missing, write frontier.png and frontier.json, and print a table and a sentence for each algebra."""
    file, as_json = values.pop("file"), values.pop("json")
    options = build(Sweep, values)
    check_execution(options)
    if options.only:
        raise InputError("--only is not supported here: remove networks from the file", code="unsupported")
    content = read_config(file)[1]
    from zoo_experiments.frontier import frontier

    quiet()
    found = frontier(
        content, file, options, say=lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True)
    )
    report = write(content, Path(file).stem, found)
    print(to_json(found | report, indent=2) if as_json else "\n".join(text(found, report)))
    return 1 if found["failed"] else 0


def write(content: dict[str, Any], name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Write the picture and the rows into the folder; return table and sentences."""
    from zoo_experiments.frontier_report import Frontier, draw, network_rows, sentence
    from zoo_experiments.frontier_statistics import points

    folder = Path(found["run_dir"])
    (folder / "frontier.json").write_text(json.dumps(found["rows"], indent=1) + "\n", encoding="utf-8")
    if not found["rows"]:
        return {"table": [], "sentences": []}
    made = Frontier(name, content, found["rows"], points(found["rows"], int(content["axes"]["seed"][0])))
    draw(made, folder / "frontier.png")
    return {"table": network_rows(made), "sentences": [sentence(made, algebra) for algebra in made.algebras]}


def text(found: dict[str, Any], report: dict[str, Any]) -> list[str]:
    """Return what is printed: the networks, the sentences, failed runs and the next commands."""
    from zoo.report import plain_console, plain_table

    folder, lines = shlex.quote(found["run_dir"]), []
    if report["table"]:
        share = ["in word table"] if len(report["table"][0]) == 7 else []
        table = plain_table("network", "weights", *share, "best rate", f"test {found['rows'][0]['metric']}", "seeds", "seconds")
        for row in report["table"]:
            table.add_row(*row)
        console = plain_console()
        with console.capture() as capture:
            console.print(table)
        lines += [capture.get(), *(sentence.replace("**", "") for sentence in report["sentences"])]
    lines += [f"failed: {name}" for name in found["failed"]]
    return [
        *lines,
        "",
        "next:",
        f"  {folder}/frontier.png  # quality against weights",
        f"  zoo report sweep {folder}  # all runs",
    ]
