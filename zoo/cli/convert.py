"""``zoo convert``: a trained network over the reals becomes one over an algebra."""

import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from zoo.cli.commands import quiet, show
from zoo.cli.parser import Parser
from zoo.registry import Spec
from zoo.training.options import Convert, build


def make_parser(command: str) -> Parser:
    """Return the parser."""
    text = "Project a trained network over the reals onto an algebra, and say how near it comes, layer by layer."
    parser = Parser(command, text, Convert).switch("--json", "print JSON")
    parser.short["--from"] = "source"
    return parser


def run(command: str, values: dict[str, Any]) -> int:
    """Convert a network, and print the error of every layer."""
    as_json = values.pop("json")
    options = build(Convert, values)
    from zoo.training.convert import convert

    quiet()
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        converted = convert(options)
    show(converted, as_json, print_layers if "file" in converted else print_converted)
    return 0


def print_layers(made: dict[str, Any]) -> None:
    """Print what was a layer of another library, and how to go on."""
    from zoo.report import plain_console, plain_table

    console, table = plain_console(), plain_table("layer", "real matrix", "components")
    for row in made["layers"]:
        table.add_row(row["layer"] or "(the whole)", " x ".join(map(str, row["shape"])), str(row["components"]))
    console.print(table)
    count = len(made["kept"])
    console.print(f"{made['file']}: {len(made['layers'])} layers of ours; {count} other tensors as they were")
    console.print(f"\nnext, in Python:\n  net.load_state_dict(safetensors.torch.load_file({made['file']!r}))")


def print_converted(made: dict[str, Any]) -> None:
    """Print the relative error of every matrix, their mean and the worst, and what to do next."""
    from zoo.report import plain_console, plain_table

    console, error = plain_console(), made["error"]
    if error:
        table = plain_table("layer", "real matrix", "relative error", "of noise")
        for row in made["layers"]:
            sizes = " x ".join(map(str, row["shape"]))
            table.add_row(row["layer"], sizes, f"{row['error']:.4f}", f"{row['unstructured']:.4f}")
        console.print(table)
        worst = f"worst {error['worst']:.4f} ({error['worst_layer']})"
        console.print(
            f"relative error: mean {error['mean']:.4f}, {worst}; of matrices without structure {error['unstructured']:.4f}"
        )
    for reason, names in made["stayed_real"].items():
        console.print(f"stayed real ({reason}): {', '.join(names)}")
    total, twin = made["parameters"]["total"], made["parameters"]["real_twin"]
    console.print(f"{made['folder']}: {total:,} parameters, {total / twin:.1%} of {twin:,}")
    print_next(made, console.print)


def print_next(made: dict[str, Any], say: Callable[[str], None]) -> None:
    """Print what to do with a new model folder."""
    folder, data = shlex.quote(made["folder"]), made["data"]
    if made["task"] is None:
        say(f"\nnext, in Python:\n  net = zoo.load({made['folder']!r}).net")
        return
    say("\nnext:")
    if data is None and made["max_length"]:
        say(f'  zoo generate {folder} --prompt "some text"\n  zoo test {folder} --data "corpus(path=FILE)"')
        read = {"path": "FILE", "tokenizer": f"{made['folder']}/tokenizer.json", "max_length": made["max_length"]}
        data = str(Spec("corpus", read))
    else:
        say(f"  zoo test {folder}{'' if data else ' --data SPEC'}")
    options = {key: made[key] for key in ("backbone", "algebra", "scope", "embedding")} | {"data": data or "SPEC"}
    defaults = {"scope": "all", "embedding": None}
    words = [f"--{key} {shlex.quote(value)}" for key, value in options.items() if value != defaults.get(key, "")]
    teacher = f" --teacher {shlex.quote(made['source'])}" if made["has_teacher"] else ""
    say(f"  zoo fit {' '.join(words)} --from {folder}{teacher}")
