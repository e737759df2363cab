"""``zoo info`` and ``zoo report``: the parameters of a network, and what a trained model has learned."""

import json
from dataclasses import asdict
from typing import Any

from zoo.cli.commands import quiet
from zoo.cli.parser import Parser
from zoo.errors import InputError
from zoo.training.options import Fit, Info, build

REPORTS = ("frequencies",)


def make_parser(command: str) -> Parser:
    """Return the parser of either command."""
    if command == "info":
        parser = Parser(command, "Count the parameters of a network beside its twin over the reals.", Info)
        parser.switch("--json", "print JSON")
        return parser
    parser = Parser(command, "Report what a trained model has learned.")
    parser.positional("report", "frequencies: words by their sensitivity to position, csv and png")
    parser.positional("run", "a run (runs/NAME) or model folder; the files are written there")
    parser.value("--top", int, 50, "words to show at each end (default 50)")
    parser.switch("--json", "print JSON")
    return parser


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
    table = layer_table(options, load_data(options).info.model_kwargs)
    if as_json:
        print(json.dumps(table, indent=2))
    else:
        print_table(table)
    return 0


def report(values: dict[str, Any]) -> int:
    """Rank the words of a run by how fast their vectors turn with the position."""
    run, top = values["run"], values["top"]
    if values["report"] not in REPORTS:
        raise InputError(f"unknown report '{values['report']}': use {', '.join(REPORTS)}")
    if top < 1:
        raise InputError(f"--top {top}: use a whole number from 1")
    from pathlib import Path

    from zoo.checkpoint import find, load
    from zoo.checkpoint.atomic import write_bytes, write_text
    from zoo.report import frequencies as module

    model, net = find(run), load(run)
    # Beside the model folder: its manifest lists every file in it.
    folder, tokenizer = Path(run).expanduser() if model != Path(run).expanduser() else model.parent, model / "tokenizer.json"
    found = module.find_frequencies(net, run)
    if not tokenizer.is_file():
        raise InputError(f"{tokenizer} is missing: without it nobody knows the words of this model")
    words = module.read_words(tokenizer.read_text(encoding="utf-8"), str(tokenizer))
    ranking = module.rank(found, words, run)
    write_text(folder / "frequencies.csv", module.as_csv(ranking))
    write_bytes(folder / "frequencies.png", module.draw_density(ranking, folder.resolve().name))
    files = {"csv": str(folder / "frequencies.csv"), "png": str(folder / "frequencies.png")}
    if values["json"]:
        most, least = ([word._asdict() for word in end] for end in module.ends(ranking, top))
        print(json.dumps({"run": run, "words": len(ranking), "most": most, "least": least, **files}, indent=2))
    else:
        module.print_ranking(ranking, top)
        print(f"all of them are in {files['csv']}, their density in {files['png']}")
    return 0
