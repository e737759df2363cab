"""``zoo info`` and ``zoo report``: the parameters of a network, and what a trained model has learned."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.cli.commands import quiet, show
from zoo.cli.parser import Parser
from zoo.training.options import Fit, Info, build


def make_parser(command: str) -> Parser:
    """Return the parser of either command."""
    if command == "info":
        parser = Parser(command, "Count the parameters of a network beside its twin over the reals.", Info)
    else:
        parser = Parser(command, "Report what a trained model has learned.")
        parser.positional("report", 'spec of the report, such as frequencies or "frequencies(top=20)" (zoo list reports)')
        parser.positional("run", "a run (runs/NAME) or model folder; the files are written there")
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Print how many parameters a network has and where they are, or make one report of a run."""
    return info(values) if command == "info" else report(values)


def info(values: dict[str, Any]) -> int:
    """Print the table of a network's parameters."""
    as_json = values.pop("json")
    from zoo.report.parameters import layer_table, print_table
    from zoo.training.resolve import load_data, resolve

    quiet()
    options = resolve(Fit(**asdict(build(Info, values))))
    show(layer_table(options, load_data(options).info.model_kwargs), as_json, print_table)
    return 0


def report(values: dict[str, Any]) -> int:
    """Make a report of a trained model, print it and write its files into the run's folder."""
    run = values["run"]
    registry.resolve("zoo.reports", values["report"])
    from zoo.checkpoint import find
    from zoo.checkpoint.atomic import write_bytes
    from zoo.inference.model import load

    quiet()
    place = find(run)
    # Not into the model folder: its manifest lists every file in it.
    folder = Path(run).expanduser() if place != Path(run).expanduser() else place.parent
    made = registry.create("zoo.reports", values["report"], load(run))
    for name, content in made.files.items():
        write_bytes(folder / name, content)
    files = {Path(name).suffix.lstrip("."): str(folder / name) for name in made.files}
    text = f"{made.text}\nwritten: {', '.join(files.values())}"
    show({"run": run, **made.values, **files}, values["json"], lambda _: print(text))
    return 0
