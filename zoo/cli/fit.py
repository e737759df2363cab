"""``zoo fit``, ``average``, ``recover``, ``convert`` and ``prune``: the commands that make models."""

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo.checkpoint import find
from zoo.cli.models import check_local, locate
from zoo.cli.result import Result
from zoo.errors import InputError
from zoo.registry import Spec
from zoo.training.options import Average, Convert, Fit, Prune
from zoo.training.processes import is_first_process


def fit(*, options: Fit, print_config: bool = False) -> None:
    """Train and test a network over an algebra.

    Args:
        print_config: Print the effective configuration as YAML and stop.
    """
    if print_config:
        import yaml

        from zoo.training.resolve import effective

        values = {key: value for key, value in asdict(effective(options)).items() if value is not None}
        yaml.safe_dump(json.loads(json.dumps(values)), sys.stdout, sort_keys=False)  # tuples become lists
        return
    from zoo.training.fit import run_fit
    from zoo.training.summary import print_summary

    summary = run_fit(options)
    if is_first_process():
        print_summary(summary)


def average(run: str, *, options: Average) -> Result:
    """Average the last checkpoints of a run and test the result; train with --keep first.

    Args:
        run: A run (runs/NAME) that was trained with --keep.
    """
    find(run)
    from zoo.training.runs import average

    return Result(average(run, options), _print_average)


def _metrics_table(columns: Mapping[str, Any]) -> Any:
    """Return a table of the metrics of models, in the order of those of the second."""
    from zoo.checkpoint.manifest import number
    from zoo.reports import plain_table

    table = plain_table("", *columns)
    for title, split in (("validation", "validation"), ("test", "metrics")):
        for name in [*columns.values()][1][split]:
            table.add_row(f"{title} {name}", *(number(column[split].get(name)) for column in columns.values()))
    return table


def _print_average(result: dict[str, Any]) -> None:
    from zoo.reports import plain_console

    plain_console().print(_metrics_table({"the run": result["before"], f"mean of {len(result['averaged'])}": result}))
    print(f"the model is in {result['folder']}, use it like a run: zoo test {shlex.quote(result['folder'])}")


def recover(run: str) -> Result:
    """Save the model of a killed or crashed run from its best checkpoint.

    Args:
        run: The folder of the run (runs/NAME).
    """
    from zoo.training.runs import recover

    recovered = recover(run)
    model = f"the model of epoch {recovered['epoch']} is in {recovered['folder']}"
    return Result(recovered, f"{model}, not tested yet: zoo test {shlex.quote(run)}")


def convert(*, options: Convert) -> Result:
    """Project a trained real network onto an algebra, and print the error of each layer."""
    if not options.source:
        raise InputError(
            "missing --from: use a run, a model folder, a name from zoo list checkpoints, or timm/NAME", code="missing"
        )
    if not options.to:
        raise InputError("missing --to: use --to FOLDER", code="missing")
    from zoo.training.compress import convert

    converted = convert(options)
    return Result(converted, _print_layers if "file" in converted else _print_converted)


def prune(run: str, *, options: Prune) -> Result:
    """Remove heads, hidden units and channels of a trained network, measure it, and fine-tune it."""
    path = locate(run)
    from zoo.training.compress import prune
    from zoo.training.folder import file_name

    if options.out is None and not Path(run).expanduser().exists():  # never write to the cache or the package
        options.out = f"{file_name(run.rpartition('/')[2])}-pruned-{options.ratio}"
    if options.data is None:
        check_local(path)
    result = prune(path, options)
    return Result(result | {"cuts": [cut._asdict() for cut in result["cuts"]]}, _print_pruned)


def _print_layers(result: dict[str, Any]) -> None:
    from zoo.reports import plain_console, plain_table

    console, table = plain_console(), plain_table("layer", "real matrix", "components")
    for row in result["layers"]:
        table.add_row(row["layer"] or "(the whole)", " x ".join(map(str, row["shape"])), str(row["components"]))
    console.print(table)
    count = len(result["kept"])
    console.print(f"{result['file']}: {len(result['layers'])} layers converted, {count} tensors copied unchanged")
    console.print(f"\nnext, in Python:\n  net.load_state_dict(safetensors.torch.load_file({result['file']!r}))")


def _print_converted(result: dict[str, Any]) -> None:
    from zoo.reports import plain_console, plain_table

    console, error = plain_console(), result["error"]
    if error:
        table = plain_table("layer", "real matrix", "relative error", "of noise")
        for row in result["layers"]:
            sizes = " x ".join(map(str, row["shape"]))
            table.add_row(row["layer"], sizes, f"{row['error']:.4f}", f"{row['unstructured']:.4f}")
        console.print(table)
        worst = f"worst {error['worst']:.4f} ({error['worst_layer']})"
        unstructured = f"of matrices without structure {error['unstructured']:.4f}"
        console.print(f"relative error: mean {error['mean']:.4f}, {worst}; {unstructured}")
    for reason, names in result["stayed_real"].items():
        console.print(f"stayed real ({reason}): {', '.join(names)}")
    total, twin = result["parameters"]["total"], result["parameters"]["real_twin"]
    console.print(f"{result['folder']}: {total:,} parameters, {total / twin:.1%} of {twin:,}")
    _print_next(result, console.print)


def _print_next(result: dict[str, Any], write: Callable[[str], None]) -> None:
    folder, data = shlex.quote(result["folder"]), result["data"]
    if result["task"] is None:
        write(f"\nnext, in Python:\n  net = zoo.load({result['folder']!r}).net")
        return
    write("\nnext:")
    if data is None and result["max_length"]:
        write(f'  zoo generate {folder} --prompt "some text"\n  zoo test {folder} --data "corpus(path=FILE)"')
        options = {"path": "FILE", "tokenizer": f"{result['folder']}/tokenizer.json", "max_length": result["max_length"]}
        data = str(Spec("corpus", options))
    else:
        write(f"  zoo test {folder}{'' if data else ' --data SPEC'}")
    flags = {key: result[key] for key in ("backbone", "algebra", "scope", "embedding")} | {"data": data or "SPEC"}
    defaults = {"scope": "all", "embedding": None}
    words = [f"--{key} {shlex.quote(value)}" for key, value in flags.items() if value != defaults.get(key, "")]
    teacher = f" --teacher {shlex.quote(result['source'])}" if result["has_teacher"] else ""
    write(f"  zoo fit {' '.join(words)} --from {folder}{teacher}")


def _print_pruned(result: dict[str, Any]) -> None:
    from zoo.reports import plain_console

    columns = {"before": result["before"], "pruned": result["after"]}
    table = _metrics_table(columns | ({"fine-tuned": result["tuned"]} if "tuned" in result else {}))
    parameters, forward = result["parameters"], result["forward"]
    table.add_row("parameters", f"{parameters['before']:,}", f"{parameters['after']:,}")
    table.add_row("forward pass, ms", f"{forward['before_ms']:.2f}", f"{forward['after_ms']:.2f}")
    console = plain_console()
    console.print(table)
    share = parameters["after"] / parameters["before"]
    console.print(f"{share:.1%} of the parameters, {forward['ratio']:.0%} of the time")
    console.print(f"{result['backbone']} is in {result['folder']}")
    if clamped := [cut["name"] for cut in result["cuts"] if cut["is_clamped"]]:
        text = f"{len(clamped)} layers clamped to one head or unit"
        console.print(f"{text}: {clamped[0]}, ...")
    folder, run = shlex.quote(result["folder"]), result.get("run_dir")
    if run:
        epochs = f"{result['epochs']} epoch{'s' * (result['epochs'] != 1)}"
        console.print(f"fine-tuned for {epochs} in {run}\n\nnext:\n  zoo test {shlex.quote(run)}")
    else:
        console.print(f"\nnext:\n  zoo test {folder}")
        if result["config"]:
            spec = shlex.quote(result["backbone"])
            console.print(f"  zoo fit -c {shlex.quote(result['config'])} --backbone {spec} --from {folder}  # fine-tune it")
