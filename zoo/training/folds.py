"""Cross-validation: as many runs as folds, each tested on the part that the others train on."""

import math
import shlex
import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.checkpoint.atomic import write_json
from zoo.errors import InputError, Interrupted, check_rules
from zoo.registry import Spec
from zoo.training.fit import NOTHING_KEPT, fit
from zoo.training.folder import claim, config_values, decisive, finished_run, read_config, read_summary, write_config
from zoo.training.options import Fit
from zoo.training.resolve import load_data, plan, resolve
from zoo.training.trainer import check_trainer

_OPTIONS = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "vectors_found", "seed")
_SHARED = (*_OPTIONS, "teacher", "task", "parameters", "versions")
"""What is the same in every fold's summary; of the parameters of words, which differ a little, those of the first are told."""
_OWN = ("seconds", "epochs", "device", "stayed_real", "data_sha256")


def cross_validate(options: Fit) -> dict[str, Any]:
    """Run every fold in a folder of its own and return their summary, which is also written to ``summary.json``.

    Where ``resume`` says so, folds that are finished are read, and the one that was under way goes on from its checkpoint.
    """
    options = resolve(options)
    if (summary := finished_run(options)) is not None:
        return summary
    rows = [fold(options, number) for number in range(options.folds or 0)]
    check(options, rows)
    with claim(options) as folder:
        places = [folder.path / f"fold-{number:02d}" for number in range(1, len(rows) + 1)]
        if folder.resumed:
            check_begun(options, folder.path, dict(zip(places, rows, strict=True)))
        write_config(folder.path, options)
        say, resume = partial(kept, folder.path, len(rows)), "auto" if folder.resumed else None
        summaries: list[dict[str, Any]] = []
        try:
            for place, one in zip(places, rows, strict=True):
                if (place / "summary.json").exists():
                    summaries.append(read_summary(place, (*_SHARED, *_OWN)))
                else:
                    summaries.append(fit(replace(one, run_dir=str(place), resume=resume), say=say))
        except KeyboardInterrupt as stop:
            if isinstance(stop, Interrupted):
                raise
            raise Interrupted(f"stopped; {say() or NOTHING_KEPT}", signal.SIGINT) from stop
        finally:
            if not any(folder.path.glob("fold-*")):
                folder.discard()
        summary = together(summaries) | {"data": options.data, "run_dir": str(folder.path)}
        write_json(folder.path / "summary.json", summary)
    return summary


def check(options: Fit, rows: list[Fit]) -> None:
    """Check the number of folds, the Trainer's arguments, and that the data have no split of their own."""
    devices, taken = options.trainer["devices"], {"fold", "folds"} & Spec.parse(options.data or "").options.keys()
    check_rules((str(devices) == "1", f"--folds trains on one device, not on --trainer.devices {devices}: leave it out"))
    check_trainer(options.trainer)
    check_rules(
        (len(rows) >= 2, f"folds={options.folds}: use 2 or more, 10 as in the papers"),
        (not taken, f"'{options.data}' sets {' and '.join(sorted(taken))}: leave that to --folds {options.folds}"),
    )
    if not has_folds(options) or load_data(rows[0]).has_split:
        raise InputError(f"'{options.data}' comes with a split of its own: leave --folds out")


def check_begun(options: Fit, folder: Path, rows: Mapping[Path, Fit]) -> None:
    """Refuse to go on with folds that are finished, or that have begun with other options: a mean is over equal runs."""
    begun = {place: plan(one).options for place, one in rows.items() if (place / "config.yaml").exists()}
    for place, wanted in {folder: options, **begun}.items():
        old, new = decisive(read_config(place)), decisive(config_values(wanted))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                raise InputError(f"'{place}' has {name}={old.get(name)}, not {new.get(name)}: begin a new run for another one")
    if (figures := folder / "summary.json").exists():
        raise InputError(f"the folds of '{folder}' are finished: {figures} has their figures")


def kept(folder: Path, count: int, *_: object) -> str | None:
    """Say how many folds are kept and how to go on with them; None if there is nothing."""
    finished = len(list(folder.glob("fold-*/summary.json")))
    if not finished and not any(any(folder.glob(f"fold-*/{part}")) for part in ("checkpoints/*.ckpt", "model")):
        return None
    name = shlex.quote(str(folder))
    return f"what was trained is kept, {finished} of {count} folds are finished, go on with: zoo fit --resume {name}"


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
