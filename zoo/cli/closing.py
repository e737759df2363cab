"""What a run says when it is done."""

import shlex
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from zoo.checkpoint.card import number

USES = {
    "image_classification": [("predict {} IMAGE...", "classify your own pictures")],
    "text_classification": [('predict {} "some text"', "classify your own text, or a file with one text a line")],
    "pair_classification": [('predict {} "one text" "another"', "compare your own texts, or a file with two a line")],
    "answer_ranking": [('predict {} "a question" "an answer"', "how right an answer is")],
    "language_model": [('generate {} --prompt "some text"', "let it write on")],
    "seq2seq": [
        ('generate {} --prompt "some text"', "let it answer"),
        ("predict {} FILE", "answer line by line; --beam 4 thinks longer"),
    ],
}


def close(summary: dict[str, Any]) -> None:
    """Print the result beside the real twin, and what to do next."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    parameters, run = summary["parameters"], summary["run_dir"]
    share = parameters["total"] / parameters["real_twin"]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, justify in (("", "left"), (summary["algebra"], "right"), ("real twin", "right"), ("share", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
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
        console.print(f"{summary['data']} has no test split: the validation metrics in {run}/metrics.csv are all there is.")
    epochs = f"{summary['epochs']} epoch{'s' * (summary['epochs'] != 1)}"
    work = f"{epochs} in {summary['seconds']:.1f} s on {summary['device']}"
    console.print(f"{summary['backbone']} on {summary['data']}, {work}")
    console.print(f"everything is in {run}\n\nnext:")
    folder = shlex.quote(run)
    one = f"{folder}/fold-01" if "folds" in summary else folder
    for command, purpose in (
        (f"zoo {'test' if summary['metrics'] else 'validate'} {one}", "measure it again"),
        *((f"zoo {verb.format(one)}", purpose) for verb, purpose in USES.get(summary["task"], ())),
        (f"zoo fit -c {folder}/config.yaml --algebra ANOTHER", "the same run over another algebra (zoo list algebras)"),
    ):
        console.print(f"  {command}  # {purpose}")


def spread(summary: dict[str, Any], name: str) -> str:
    """The standard deviation between folds, if there are any."""
    return f" ± {number(summary['std'][name])}" if "std" in summary else ""


def real(names: dict[str, list[str]]) -> str:
    """Say in one line which matrices stayed real and why.

    Example:
        >>> real({"stem": ["conv1"], "depthwise": ["a.dw", "b.dw"]})
        'conv1 (stem), 2 layers (depthwise)'
    """
    return ", ".join(f"{layers[0] if len(layers) == 1 else f'{len(layers)} layers'} ({why})" for why, layers in names.items())
