"""``zoo info``: the parameters of a network, layer by layer, beside its twin over the reals."""

import json
from dataclasses import asdict

from zoo.cli.parser import check_names, make_parser, parse
from zoo.training.options import Fit, Info, build


def run(command: str, argv: list[str]) -> int:
    """Print how many parameters a network has and where they are."""
    parser = make_parser(command, Info, "Count the parameters of a network beside its twin over the reals.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    values = parse(parser, argv)
    check_names(values)
    from zoo.report.parameters import layer_table, print_table
    from zoo.training.resolve import load_data, resolve

    info = build(Info, {name: values[name] for name in ("backbone", "algebra", "data", "task", "scope", "embedding")})
    options = resolve(Fit(**asdict(info)))
    info = load_data(options).info
    table = layer_table(options, info.keywords)
    if values["json"]:
        print(json.dumps(table, indent=2))
    else:
        print_table(table)
    return 0
