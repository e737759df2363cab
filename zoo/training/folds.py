"""Cross-validation: as many runs as folds, each tested on the part that the others train on."""

import math
from dataclasses import replace
from inspect import signature
from typing import Any

from zoo import registry
from zoo.checkpoint.atomic import write_json
from zoo.errors import InputError, Interrupted
from zoo.registry import Spec
from zoo.training.fit import fit
from zoo.training.folder import claim, write_config
from zoo.training.options import Fit
from zoo.training.resolve import load_data, resolve
from zoo.training.trainer import check_trainer

_OPTIONS = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "vectors_found", "seed")
_SHARED = (*_OPTIONS, "teacher", "task", "parameters", "versions")
"""What is the same in every fold's summary."""


def cross_validate(options: Fit) -> dict[str, Any]:
    """Run every fold in a folder of its own and return their summary, which is also written to ``summary.json``."""
    options = resolve(options)
    if options.resume is not None:
        raise InputError("--resume goes on with one run: give it the folder of a fold, and leave --folds out")
    options = replace(options, trainer={"devices": 1, **options.trainer})
    if str(options.trainer["devices"]) != "1":
        raise InputError(f"--folds trains on one device, not on --trainer.devices {options.trainer['devices']}: leave it out")
    check_trainer(options.trainer)
    rows = [fold(options, number) for number in range(options.folds or 0)]
    if len(rows) < 2:
        raise InputError(f"folds={options.folds}: use 2 or more, 10 as in the papers")
    if taken := sorted({"fold", "folds"} & Spec.parse(options.data or "").options.keys()):
        raise InputError(f"'{options.data}' sets {' and '.join(taken)}: leave that to --folds {options.folds}")
    if not has_folds(options) or load_data(rows[0]).has_split:
        raise InputError(f"'{options.data}' comes with a split of its own: leave --folds out")
    with claim(options) as folder:
        write_config(folder.path, options)
        summaries: list[dict[str, Any]] = []
        try:
            for number, one in enumerate(rows, 1):
                summaries.append(fit(replace(one, run_dir=str(folder.path / f"fold-{number:02d}"))))
        except KeyboardInterrupt as stop:
            done = f"stopped in fold {len(summaries) + 1} of {len(rows)}; {len(summaries)} finished ones are in {folder.path}"
            raise Interrupted(f"{done}, and --folds begins anew", getattr(stop, "signum", 2)) from stop
        finally:
            if not any(folder.path.glob("fold-*")):
                folder.discard()
        summary = together(summaries) | {"data": options.data, "run_dir": str(folder.path)}
        write_json(folder.path / "summary.json", summary)
    return summary


def has_folds(options: Fit) -> bool:
    """Tell whether the data can be cut into folds."""
    entry, _ = registry.resolve("zoo.datasets", options.data or "")
    return "folds" in signature(registry.load(entry)).parameters


def fold(options: Fit, number: int) -> Fit:
    """Return the options of one fold, as a run of its own that its config.yaml repeats."""
    spec = Spec.parse(options.data or "")
    return replace(options, folds=None, data=str(Spec(spec.name, spec.options | {"folds": options.folds, "fold": number})))


def together(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the summaries of all folds into one."""
    names = list(summaries[0]["metrics"])
    columns = {name: [row["metrics"][name] for row in summaries] for name in names}
    means = {name: None if None in column else sum(column) / len(column) for name, column in columns.items()}
    return {
        **{key: summaries[0][key] for key in _SHARED},
        "validation": _validation(summaries),
        "metrics": means,
        "std": {name: spread(column, means[name]) for name, column in columns.items()},
        "folds": [row["metrics"] for row in summaries],
        "seconds": round(sum(row["seconds"] for row in summaries), 2),
        "epochs": max(row["epochs"] for row in summaries),
        "device": summaries[0]["device"],
        "stayed_real": summaries[0]["stayed_real"],
        "data_sha256": [row["data_sha256"] for row in summaries],
    }


def _validation(summaries: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Average the figure by which every fold chose its epoch, and by which sweeps compare runs; None where one has none."""
    found = [row.get("validation") or {"value": None} for row in summaries]
    if any(one["value"] is None for one in found):
        return None
    return {"metric": found[0]["metric"], "mode": found[0]["mode"], "value": sum(one["value"] for one in found) / len(found)}


def spread(column: list[float], mean: float | None) -> float | None:
    """Standard deviation between folds, with the n - 1 of a sample."""
    return None if mean is None else math.sqrt(sum((value - mean) ** 2 for value in column) / (len(column) - 1))
