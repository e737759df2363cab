"""The summary of a run, summary.json, and its text for people."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from zoo.checkpoint.manifest import number
from zoo.checkpoint.records import invalid_fields, known_fields
from zoo.errors import InputError
from zoo.reports import plain_console, plain_table
from zoo.tasks import task_type
from zoo.training.options import is_object

_REQUIRED = frozenset({"metrics", "parameters"})
"""Fields that every summary must have; those of another version may lack others."""
_OPTIONAL = frozenset({"decoding", "note", "validation", "std", "folds", "lottery"})


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The content of summary.json; ``backbone`` to ``task`` are specs, or the names of objects.

    Attributes:
        parameters: ``total``, ``embedding`` and ``real_twin``, the parameters of the same network over the reals.
        versions: Versions of the libraries and plugins by distribution.
        stayed_real: Names of the layers that stayed real by reason.
        vectors_found: How many ``words`` have pretrained vectors: ``found``.
        decoding: Options for generating text.
        note: Which objects the run was given in Python.
        metrics: Test metrics by name; None is undefined.
        undefined: Why metrics are undefined, by name.
        checkpoint: The training checkpoint of the best validation.
        validation: The ``metric`` that chose it, its ``mode``, ``value``, ``epoch`` and ``step``.
        std: Sample standard deviations over folds.
        folds: Test metrics of each fold.
        lottery: Facts about a round of lottery tickets.
    """

    backbone: str | None = None
    algebra: str | None = None
    data: str | None = None
    scope: str | None = None
    init: str | None = None
    embedding: str | None = None
    task: str | None = None
    vectors: str | None = None
    teacher: str | None = None
    seed: int | None = None
    parameters: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    data_sha256: str | list[str] | None = None
    stayed_real: dict[str, list[str]] = field(default_factory=dict)
    vectors_found: dict[str, int] | None = None
    decoding: dict[str, Any] | None = None
    note: str | None = None
    run_dir: str | None = None
    resumed_from: str | None = None
    seconds: float = 0.0
    epochs: int = 0
    metrics: dict[str, float | None] = field(default_factory=dict)
    undefined: dict[str, str] = field(default_factory=dict)
    device: str = ""
    checkpoint: str | None = None
    validation: dict[str, Any] | None = None
    std: dict[str, float | None] | None = None
    folds: list[dict[str, float | None]] | None = None
    lottery: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of summary.json, without facts that only some runs have."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None or name not in _OPTIONAL}

    @classmethod
    def from_json(cls, values: Mapping[str, object], file: Path, needed: Iterable[str] = ()) -> "Summary":
        """Check the content of summary.json, which must have the needed fields; errors name the file."""
        if wrong := invalid_fields(cls, values, _REQUIRED.union(needed)):
            text = f"'{file}' is not the summary of a run ({', '.join(wrong)}): delete the run folder to repeat the run"
            raise InputError(text)
        return cls(**known_fields(cls, values))


def print_summary(summary: Summary) -> None:
    """Print parameters, metrics and the next commands of a run."""
    console = plain_console()
    parameters, run = summary.parameters, summary.run_dir
    twin = parameters.get("real_twin")  # None for a network object
    table = plain_table("", str(summary.algebra), *(("real twin", "relative to real") if twin else ()))
    comparison = (f"{twin:,}", f"{parameters['total'] / twin:.1%}") if twin else ()
    table.add_row("parameters", f"{parameters['total']:,}", *comparison)
    for name, value in summary.metrics.items():
        table.add_row(f"test {name}", number(value) + spread(summary, name))
    console.print()
    console.print(table)
    for name, reason in summary.undefined.items():
        console.print(f"test {name} is undefined: {reason}")
    if vectors := summary.vectors_found:
        console.print(f"pretrained vectors for {vectors['found']:,} of {vectors['words']:,} words")
    if summary.stayed_real:
        console.print(f"stayed real: {list_reasons(summary.stayed_real)}")
    if not summary.metrics and run:
        folder = f"{run}/fold-01" if summary.folds else run
        console.print(f"not tested: {summary.data} has no test split; {folder}/metrics.csv has the validation metrics")
    epochs = f"{summary.epochs} epoch{'s' * (summary.epochs != 1)}"
    duration = f"{epochs} in {summary.seconds:.1f} s on {summary.device}"
    console.print(f"{summary.backbone} on {summary.data}, {duration}")
    if run is None:
        console.print("fast_dev_run trained a few batches and saved nothing")
        return
    console.print(f"saved in {run}\n\nnext:")
    for command, purpose in next_commands(summary):
        console.print(f"  {command}  # {purpose}")


def next_commands(summary: Summary) -> list[tuple[str, str]]:
    """Return the commands to try after a run, each with its purpose."""
    folder = shlex.quote(str(summary.run_dir))
    run = f"{folder}/fold-01" if summary.folds else folder
    measure = (f"zoo {'test' if summary.metrics else 'validate'} {run}", "evaluate the model again")
    if summary.note:  # the commands cannot build objects
        return [] if is_object(summary.backbone) or is_object(summary.task) else [measure]
    is_smaller = summary.parameters["total"] < summary.parameters.get("real_twin", 0)
    return [
        measure,
        *((f"zoo {verb.format(run=run)}", purpose) for verb, purpose in task_type(str(summary.task))[0].next_commands),
        (f"zoo fit -c {folder}/config.yaml --algebra ANOTHER", "the same run over another algebra (zoo list algebras)"),
        *([(f"zoo info {run}", "its layers, and the real network of about the same size")] if is_smaller else []),
    ]


def spread(summary: Summary, name: str) -> str:
    """Format the standard deviation over folds as a suffix; empty without folds and if it is undefined."""
    std = (summary.std or {}).get(name)
    return "" if std is None else f" ± {number(std)}"


def list_reasons(names: dict[str, list[str]]) -> str:
    """Format on one line which layers stayed real, by reason.

    Example:
        >>> list_reasons({"stem": ["conv1"], "depthwise": ["a.dw", "b.dw"]})
        'conv1 (stem), 2 layers (depthwise)'
    """
    return ", ".join(f"{layers[0] if len(layers) == 1 else f'{len(layers)} layers'} ({why})" for why, layers in names.items())
