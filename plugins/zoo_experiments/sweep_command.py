"""Run a grid of runs from one file: zoo sweep FILE --jobs 2."""

import shlex
import sys
from dataclasses import fields
from typing import Any

from zoo.cli.commands import quiet, to_json
from zoo.cli.configuration import read_config
from zoo.cli.parser import Parser
from zoo.errors import InputError
from zoo.training.options import build
from zoo_experiments.options import Sweep, check_execution


def make_parser(command: str) -> Parser:
    """Return the parser of the command."""
    parser = Parser(
        command, "Run what is missing of a grid of runs, each of them one of zoo fit in a folder of its own.", Sweep
    )
    return parser.positional("file", "YAML with base, axes and exclude, see docs/sweeps.md").switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Run what is missing of a sweep, and print what all of it came to; 1 if a run has failed."""
    file, as_json = values.pop("file"), values.pop("json")
    options = build(Sweep, values)
    check_execution(options)
    values = read_config(file)[1]
    from zoo_experiments.sweep import sweep

    quiet()
    made = sweep(values, file, options, say=lambda line: print(line, file=sys.stderr if as_json else sys.stdout, flush=True))
    if as_json:
        print(to_json(made, indent=2))
    else:
        print_results(made, again(file, options))
    return 1 if made["failed"] else 0


def again(file: str, options: Sweep) -> str:
    """Write the command with the options that are not as by default."""
    given = {one.name: getattr(options, one.name) for one in fields(Sweep) if getattr(options, one.name) != one.default}
    words = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["zoo", "sweep", file, *words])


def print_results(made: dict[str, Any], again: str) -> None:
    """Print the table of a sweep and the next commands."""
    folder = shlex.quote(made["run_dir"])
    if made["rows"]:
        from zoo import registry

        try:
            print(registry.create("zoo.reports", "sweep", [made["run_dir"]]).text)
        except InputError as error:  # the runs have measured nothing
            print(error)
    for name, text in made["failed"].items():
        print(f"failed: {name}: {text}")
    print("\nnext:")
    if made["failed"]:
        print(f"  {again}  # tries what failed again")
    if made["rows"]:
        print(f"  zoo report sweep {folder}  # the table, plots and a page")
        row = made["rows"][0]
        one = f"{folder}/{row['folder']}{'/fold-01' if 'std' in row else ''}"
        print(f"  zoo {'test' if row['metrics'] else 'validate'} {one}  # each of its runs is one of zoo fit")
