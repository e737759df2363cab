"""``zoo predict``: use a trained model on image files, lines of text, or standard input."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.cli.decoding import add_decoding, decoding_of
from zoo.cli.plain_parser import plain_parser
from zoo.errors import InputError

PACKED = (".gz", ".xz")


def run(command: str, argv: list[str]) -> int:
    """Print the label of every input, or its translation, as tab-separated lines or as JSON lines."""
    parser = plain_parser(command, "Classify images or texts with a trained model, or translate texts.")
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
    add_decoding(parser.add_argument_group("models that write"))
    options = parser.parse_intermixed_args(argv)
    inputs = options.inputs or ([] if sys.stdin is None or sys.stdin.isatty() else ["-"])
    if not inputs:
        raise InputError("nothing to predict: give image files, a text in quotes, or a file (see zoo predict --help)")
    from zoo.inference import predict

    rows = predict(options.run, inputs, sys.stdin, options.truncate, decoding_of(options))
    for row in watched(rows, inputs):
        print(json.dumps(row, ensure_ascii=False) if options.json else line(row), flush=True)
    return 0


def line(row: dict[str, Any]) -> str:
    """Write a prediction as one line: the columns, or of a model that writes the answer alone."""
    if "target" in row:
        return " ".join(str(row["target"]).splitlines())
    *columns, probability = row.values()
    return "\t".join([*columns, f"{probability:.4f}"])


def watched(rows: Iterable[dict[str, Any]], inputs: list[str]) -> Iterator[dict[str, Any]]:
    """Show on a terminal how many lines are done while they go elsewhere."""
    if sys.stdout.isatty() or not sys.stderr.isatty():
        yield from rows
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Rich would put what is printed above its bar: on the terminal, and not where the user sends it.
    options: dict[str, Any] = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
    with Progress(*columns, console=Console(stderr=True), **options) as progress:
        yield from progress.track(rows, total=rows_in(inputs), description="predicting")


def rows_in(inputs: list[str]) -> int | None:
    """Count what there is to do, pictures and lines of plain files; None if nobody can know."""
    from zoo.inference.lines import PICTURES

    try:
        if not all(Path(word).is_file() and Path(word).suffix not in PACKED for word in inputs):
            return None
    except OSError:  # a text may be longer than a name can be
        return None
    files = [Path(word) for word in inputs]
    texts = [file.read_bytes() for file in files if file.suffix.lower() not in PICTURES]
    return len(files) + sum(text.removesuffix(b"\n").count(b"\n") for text in texts)
