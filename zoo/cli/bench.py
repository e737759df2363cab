"""``zoo bench``: time a network beside its twin over the reals."""

from typing import Any

from zoo.cli.commands import quiet, show
from zoo.cli.parser import Parser
from zoo.errors import InputError
from zoo.training.options import Bench, build


def make_parser(command: str) -> Parser:
    """Return the parser of the command."""
    parser = Parser(command, "Time a network beside its twin over the reals.", Bench)
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Time a network."""
    as_json = values.pop("json")
    options = build(Bench, values)
    if not (options.backbone and options.algebra):
        raise InputError("give --backbone and --algebra of a network", code="missing")
    from zoo.training.bench import bench, print_bench

    quiet()
    show(bench(options), as_json, print_bench)
    return 0
