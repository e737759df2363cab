"""``zoo predict``: use a trained model on image files, lines of text, or standard input."""

import json
import sys

from zoo.cli.plain_parser import plain_parser
from zoo.errors import InputError


def run(command: str, argv: list[str]) -> int:
    """Print the label of every input, as tab-separated lines or as JSON lines."""
    parser = plain_parser(command, "Classify images or texts with a trained model.")
    parser.add_argument("run", help="a run (runs/NAME) or model folder")
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="for a model of images an image file; for one of text a text in quotes, a file with one text a line, or - for "
        "standard input (the default if something is piped in); pairs are two texts, in a file with a tab between",
    )
    parser.add_argument("--truncate", action="store_true", help="cut texts that are longer than the model reads")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    options = parser.parse_intermixed_args(argv)
    inputs = options.inputs or ([] if sys.stdin is None or sys.stdin.isatty() else ["-"])
    if not inputs:
        raise InputError("nothing to predict: give image files, a text in quotes, or a file (see zoo predict --help)")
    from zoo.runs import predict

    for row in predict(options.run, inputs, sys.stdin, options.truncate):
        *columns, probability = row.values()
        print(json.dumps(row) if options.json else "\t".join([*columns, f"{probability:.4f}"]), flush=True)
    return 0
