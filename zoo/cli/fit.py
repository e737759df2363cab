"""``zoo fit``: check names and flags at once, then import torch and train."""

import os

from zoo.cli.config import print_config
from zoo.cli.parser import check_names, make_parser, parse
from zoo.training.options import Fit, build


def run(command: str, argv: list[str]) -> int:
    """Train a network and print what came out."""
    parser = make_parser(command, Fit, "Train a network over an algebra, measure it, and keep it in a run folder.")
    values = parse(parser, argv)
    check_names(values)
    if values.pop("print_config"):
        print_config(values)
        return 0
    from zoo.cli.closing import close
    from zoo.training.fit import fit
    from zoo.training.folds import cross_validate

    options = build(Fit, values)
    summary = fit(options) if options.folds is None else cross_validate(options)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        close(summary)
    return 0
