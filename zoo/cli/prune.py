"""``zoo prune`` and ``zoo export``: a smaller network out of a trained one, and a smaller file."""

import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from zoo.cli.commands import quiet, show
from zoo.cli.models import RUN, check_local
from zoo.cli.parser import Parser
from zoo.training.options import Prune, build
from zoo.training.processes import is_first_process


def make_parser(command: str) -> Parser:
    """Return the command's parser."""
    text = "Remove heads, hidden units and channels of a trained network, measure it, and fine-tune it."
    parser = Parser(command, text, Prune).positional("run", RUN)
    parser.switch("--structured", "remove whole heads, units and channels: the only way there is, and may be left out")
    return parser.switch("--json", "print JSON")


def run(command: str, values: dict[str, Any]) -> int:
    """Prune a model, and print what came of it."""
    as_json, source, _ = values.pop("json"), values.pop("run"), values.pop("structured")
    from zoo.hub.sources import locate
    from zoo.training.folder import file_name
    from zoo.training.prune import prune

    quiet()
    options = build(Prune, values)
    path = locate(source)
    if options.out is None and not Path(source).expanduser().exists():  # not in the cache, or in the package
        options.out = f"{file_name(source.rpartition('/')[2])}-pruned-{options.ratio}"
    if options.data is None:
        check_local(path)
    with redirect_stdout(sys.stderr if as_json else sys.stdout):  # what training says is no JSON
        result = prune(path, options)
    if is_first_process():
        show(result | {"cuts": [cut._asdict() for cut in result["cuts"]]}, as_json, lambda _: print_pruned(result))
    return 0


def print_pruned(result: dict[str, Any]) -> None:
    """Print what was removed, and the metrics, parameters and time before, after, and fine-tuned."""
    from zoo.checkpoint.card import number
    from zoo.report import plain_console, plain_table

    tuned = result.get("tuned")
    table = plain_table("", "before", "pruned", *(["fine-tuned"] if tuned else []))
    for title, split in (("validation", "validation"), ("test", "metrics")):
        for name, value in result["after"][split].items():
            own = [number(tuned[split].get(name))] if tuned else []
            table.add_row(f"{title} {name}", number(result["before"][split].get(name)), number(value), *own)
    parameters, forward = result["parameters"], result["forward"]
    table.add_row("parameters", f"{parameters['before']:,}", f"{parameters['after']:,}")
    table.add_row("forward pass, ms", f"{forward['before_ms']:.2f}", f"{forward['after_ms']:.2f}")
    console = plain_console()
    console.print(table)
    share = parameters["after"] / parameters["before"]
    console.print(f"{share:.1%} of the parameters, {forward['ratio']:.0%} of the time")
    console.print(f"{result['backbone']} is in {result['folder']}")
    if clamped := [cut.name for cut in result["cuts"] if cut.is_clamped]:
        console.print(
            f"the ratio would have left nothing of {len(clamped)} layers, which keep one head or unit: {clamped[0]}, ..."
        )
    folder, run = shlex.quote(result["folder"]), result.get("run_dir")
    if run:
        epochs = f"{result['epochs']} epoch{'s' * (result['epochs'] != 1)}"
        console.print(f"fine-tuned for {epochs} in {run}\n\nnext:\n  zoo test {shlex.quote(run)}")
    else:
        console.print(f"\nnext:\n  zoo test {folder}")
        if result["config"]:
            spec = shlex.quote(result["backbone"])
            console.print(f"  zoo fit -c {shlex.quote(result['config'])} --backbone {spec} --from {folder}  # fine-tune it")
