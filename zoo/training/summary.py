"""The summary of a run and the configuration of its model, and how the summary is printed."""

import logging
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from zoo.backbones.build import count, equal_size, real_twin
from zoo.checkpoint.card import number
from zoo.checkpoint.folder import conversion_record, library_versions, network_options
from zoo.checkpoint.integrity import fingerprint
from zoo.conversion import stayed_real
from zoo.report import plain_console, plain_table
from zoo.tasks import task_type
from zoo.training.network import Vectors
from zoo.training.objects import algebras_of, stands_for_spec
from zoo.training.options import is_object
from zoo.training.resolve import Plan

SPEC_KEYS = ("backbone", "algebra", "data", "scope", "init", "embedding")


def record(plan: Plan, net: nn.Module, vectors: Vectors | None) -> dict[str, Any]:
    """Collect the facts of a run that are known before training.

    Returns:
        ``summary``, the first keys of summary.json; ``config`` and ``files`` of the model folder (`zoo.checkpoint.save`); and
        ``network``, the keywords that rebuild the network, or None if an object has no spec.
    """
    info, product = getattr(plan.data, "info", None), plan.objects.algebra
    layers = None if plan.objects.net is not None else network_options(plan.config, info)
    names = {key: plan.config.get(key) for key in SPEC_KEYS}
    names["task"] = plan.config.get("task") or getattr(plan.data, "task", None)
    config: dict[str, Any] = {key: None if is_object(name) else name for key, name in names.items()}
    config |= {"info": None if info is None else info.to_dict()}
    summary = names | {key: plan.config.get(key) for key in ("vectors", "teacher", "seed")}
    parameters = count(net)
    if layers is not None:
        parameters["real_twin"] = count(real_twin(plan.objects.backbone or plan.options.backbone, **layers))["total"]
    summary |= {"parameters": parameters, "equal_size": None, "versions": library_versions(config)}
    if layers is not None and plan.objects.backbone is None and parameters["total"] < parameters["real_twin"]:
        nearest = equal_size(str(names["backbone"]), parameters["total"], **layers)
        summary["equal_size"] = nearest and {"backbone": nearest[0], "parameters": nearest[1]}
    summary |= {"data_sha256": getattr(info, "sha256", None), "stayed_real": stayed_real(net)}
    summary["vectors_found"] = vectors and {"found": int(vectors[1].sum()), "words": len(vectors[1])}
    if hasattr(plan.task, "decoding"):
        summary["decoding"] = config["decoding"] = plan.config["decoding"]
    if given := [key for key in ("backbone", "algebra", "data", "task") if is_object(names[key])]:
        objects = ", ".join(given)
        summary["note"] = f"given in Python: {objects}; zoo.load needs them again, and config.yaml cannot repeat the run"
    if config["backbone"] is None:
        config["conversion"] = conversion_record(net)
    if config["algebra"] is None:
        config["algebra_sha256"] = fingerprint(product if product is not None else algebras_of(net)[0])
    has_spec = plan.objects.backbone is None and (product is None or stands_for_spec(product))
    files = dict(getattr(plan.data, "files", {}))
    return {"config": config, "files": files, "network": layers if has_spec else None, "summary": summary}


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Suppress the log messages and warnings of Lightning."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning.*")
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def print_summary(summary: dict[str, Any]) -> None:
    """Print parameters, metrics and the next commands of a run."""
    console = plain_console()
    parameters, run = summary["parameters"], summary["run_dir"]
    twin = parameters.get("real_twin")  # None for a network object
    table = plain_table("", summary["algebra"], *(("real twin", "share") if twin else ()))
    comparison = (f"{twin:,}", f"{parameters['total'] / twin:.1%}") if twin else ()
    table.add_row("parameters", f"{parameters['total']:,}", *comparison)
    for name, value in summary["metrics"].items():
        table.add_row(f"test {name}", number(value) + spread(summary, name))
    console.print()
    console.print(table)
    if vectors := summary["vectors_found"]:
        console.print(f"pretrained vectors for {vectors['found']:,} of {vectors['words']:,} words")
    if summary["stayed_real"]:
        console.print(f"stayed real: {list_reasons(summary['stayed_real'])}")
    if not summary["metrics"] and run:
        folder = f"{run}/fold-01" if "folds" in summary else run
        console.print(f"not tested: {summary['data']} has no test split; {folder}/metrics.csv has the validation metrics")
    epochs = f"{summary['epochs']} epoch{'s' * (summary['epochs'] != 1)}"
    duration = f"{epochs} in {summary['seconds']:.1f} s on {summary['device']}"
    console.print(f"{summary['backbone']} on {summary['data']}, {duration}")
    if run is None:
        console.print("fast_dev_run trained a few batches and saved nothing")
        return
    console.print(f"saved in {run}\n\nnext:")
    for command, purpose in next_commands(summary):
        console.print(f"  {command}  # {purpose}")


def next_commands(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the commands to try after a run, each with its purpose."""
    folder = shlex.quote(summary["run_dir"])
    run = f"{folder}/fold-01" if "folds" in summary else folder
    measure = (f"zoo {'test' if summary['metrics'] else 'validate'} {run}", "measure the model again")
    real = summary.get("equal_size")
    spec = real and shlex.quote(real["backbone"])
    size = f"a real network of about the same size, {real['parameters']:,} parameters" if real else ""
    if "note" in summary:  # the commands cannot build objects
        return [] if is_object(summary["backbone"]) or is_object(summary["task"]) else [measure]
    return [
        measure,
        *((f"zoo {verb.format(run=run)}", purpose) for verb, purpose in task_type(summary["task"])[0].next_commands),
        (f"zoo fit -c {folder}/config.yaml --algebra ANOTHER", "the same run over another algebra (zoo list algebras)"),
        *([(f"zoo fit -c {folder}/config.yaml --algebra real --backbone {spec}", size)] if real else []),
    ]


def spread(summary: dict[str, Any], name: str) -> str:
    """Format the standard deviation over folds as a suffix; empty without folds."""
    return f" ± {number(summary['std'][name])}" if "std" in summary else ""


def list_reasons(names: dict[str, list[str]]) -> str:
    """Format on one line which layers stayed real, by reason.

    Example:
        >>> list_reasons({"stem": ["conv1"], "depthwise": ["a.dw", "b.dw"]})
        'conv1 (stem), 2 layers (depthwise)'
    """
    return ", ".join(f"{layers[0] if len(layers) == 1 else f'{len(layers)} layers'} ({why})" for why, layers in names.items())
