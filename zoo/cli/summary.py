"""Print what a run, an average or a measurement found, and the next commands to try."""

import shlex
from typing import Any

from zoo.checkpoint.card import number
from zoo.report import plain_console, plain_table
from zoo.tasks import task_type


def print_summary(summary: dict[str, Any]) -> None:
    """Print the result of a run beside its real twin, and the next commands."""
    console = plain_console()
    parameters, run = summary["parameters"], summary["run_dir"]
    share = parameters["total"] / parameters["real_twin"]
    table = plain_table("", summary["algebra"], "real twin", "share")
    table.add_row("parameters", f"{parameters['total']:,}", f"{parameters['real_twin']:,}", f"{share:.1%}")
    for name, value in summary["metrics"].items():
        table.add_row(f"test {name}", number(value) + spread(summary, name), "", "")
    console.print()
    console.print(table)
    if found := summary["vectors_found"]:
        console.print(f"pretrained vectors for {found['found']:,} of {found['words']:,} words")
    if summary["stayed_real"]:
        console.print(f"stayed real: {real(summary['stayed_real'])}")
    if not summary["metrics"]:
        own = f"{run}/fold-01" if "folds" in summary else run
        console.print(
            f"not tested: {summary['data']} has no test split, or none of it was read; {own}/metrics.csv is of validation"
        )
    epochs = f"{summary['epochs']} epoch{'s' * (summary['epochs'] != 1)}"
    work = f"{epochs} in {summary['seconds']:.1f} s on {summary['device']}"
    console.print(f"{summary['backbone']} on {summary['data']}, {work}")
    console.print(f"everything is in {run}\n\nnext:")
    for command, purpose in next_commands(summary):
        console.print(f"  {command}  # {purpose}")


def next_commands(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return commands to try after a run, each with its purpose; those of the task come from its class."""
    folder = shlex.quote(summary["run_dir"])
    one = f"{folder}/fold-01" if "folds" in summary else folder
    return [
        (f"zoo {'test' if summary['metrics'] else 'validate'} {one}", "measure it again"),
        *((f"zoo {verb.format(run=one)}", purpose) for verb, purpose in task_type(summary["task"])[0].next_commands),
        (f"zoo fit -c {folder}/config.yaml --algebra ANOTHER", "the same run over another algebra (zoo list algebras)"),
    ]


def print_average(made: dict[str, Any]) -> None:
    """Print the metrics of a mean of checkpoints beside those of its run."""
    table = plain_table("", "the run", f"mean of {len(made['averaged'])}")
    for title, split in (("validation", "validation"), ("test", "metrics")):
        for name, value in made[split].items():
            table.add_row(f"{title} {name}", number(made["before"][split].get(name)), number(value))
    console = plain_console()
    console.print(table)
    console.print(f"the model is in {made['folder']}, use it like a run: zoo test {shlex.quote(made['folder'])}")


def print_metrics(split: str, metrics: dict[str, float]) -> None:
    """Print one metric a line, the values in one column."""
    width = max(map(len, metrics), default=0)
    print("\n".join(f"{split} {name:<{width}}  {number(value)}" for name, value in metrics.items()))


def spread(summary: dict[str, Any], name: str) -> str:
    """Return the standard deviation between folds, if there are any, as a suffix."""
    return f" ± {number(summary['std'][name])}" if "std" in summary else ""


def real(names: dict[str, list[str]]) -> str:
    """Say in one line which matrices stayed real and why.

    Example:
        >>> real({"stem": ["conv1"], "depthwise": ["a.dw", "b.dw"]})
        'conv1 (stem), 2 layers (depthwise)'
    """
    return ", ".join(f"{layers[0] if len(layers) == 1 else f'{len(layers)} layers'} ({why})" for why, layers in names.items())
