"""The summary of a run, summary.json."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from zoo.checkpoint.records import invalid_fields, known_fields
from zoo.errors import InputError

_REQUIRED = frozenset({"metrics", "parameters"})
"""Fields that every summary must have; those of another version may lack others."""
_OPTIONAL = frozenset({"decoding", "note", "validation", "std", "folds", "lottery", "quantized"})


@dataclass(kw_only=True)
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
        quantized: Test ``metrics`` of the quantized network and its ``format``, after training with `Fit.quantize_aware`.
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
    quantized: dict[str, Any] | None = None
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
    def from_json(cls, values: Mapping[str, Any], file: Path, needed: Iterable[str] = ()) -> "Summary":
        """Check the content of summary.json, which must have the needed fields; errors name the file."""
        if wrong := invalid_fields(cls, values, _REQUIRED.union(needed)):
            text = f"'{file}' is not the summary of a run ({', '.join(wrong)}): delete the run folder to repeat the run"
            raise InputError(text)
        return cls(**known_fields(cls, values))
