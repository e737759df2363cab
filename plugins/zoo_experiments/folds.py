"""Cross-validation: a grid of as many runs as folds, each tested on the part that the others train on."""

import math
import shlex
import signal
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.checkpoint.atomic import write_json
from zoo.errors import InputError, Interrupted, check_rules
from zoo.registry import Spec
from zoo.training.fit import NOTHING_KEPT, fit
from zoo.training.folder import FREE, RunFolder, claim, finished_run, read_summary, write_config
from zoo.training.options import Fit
from zoo.training.resolve import load_data, plan, resolve
from zoo.training.trainer import check_trainer
from zoo_experiments.executors import Here
from zoo_experiments.grid import Grid, Point, Row, changed_options, execute

_OPTIONS = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "vectors_found", "seed")
_SHARED = (*_OPTIONS, "teacher", "task", "parameters", "versions", "stayed_real", "device")
"""Keys that are equal in the summary of every fold; the word count, which differs a little, is that of the first."""
_OWN = ("seconds", "epochs", "data_sha256")


class Folds(Grid):
    """The folds of a run.

    Args:
        folder: The folder of the whole.
        folds: The options of every fold.
        options: The options of the whole.
        resumed: Whether the folder holds folds already.
    """

    def __init__(self, folder: Path, folds: list[Fit], options: Fit, resumed: bool) -> None:
        super().__init__(folder, [Point(f"fold-{number:02d}", {"fold": number}) for number in range(1, len(folds) + 1)])
        self.options, self.resumed = options, resumed
        self.folds: Mapping[str, Fit] = {point.name: fold for point, fold in zip(self.points, folds, strict=True)}
        if resumed:
            self._check_begun()
        self.rows = {point.name: self.read_row(point) for point in self.points if self.is_finished(point)}

    def _check_begun(self) -> None:
        """Refuse to resume folds that have begun with other options: a mean is over equal runs."""
        begun = {self.path(p): plan(self.folds[p.name]).options for p in self.points if (self.path(p) / "config.yaml").exists()}
        for folder, wanted in {self.folder: self.options, **begun}.items():
            for name, old, new in changed_options(folder, wanted, FREE.__contains__):
                text = f"'{folder}' has {name}={old}, not {new}: begin a new run for another one"
                raise InputError(text, code="mismatch")
        if (summary := self.folder / "summary.json").exists():
            raise InputError(f"the folds of '{self.folder}' are finished, see {summary}", code="conflict")

    def command(self, point: Point) -> list[str]:
        """Return the words after ``zoo`` that resume a fold."""
        return ["fit", "--resume", str(self.path(point))]

    def train(self, point: Point) -> None:
        """Train or resume a fold in this process."""
        fold = replace(self.folds[point.name], run_dir=str(self.path(point)), resume="auto" if self.resumed else None)
        fit(fold, say=lambda folder, trained: self.left())

    def read_row(self, point: Point) -> Row:
        """Read the summary of a fold."""
        return read_summary(self.path(point), (*_SHARED, *_OWN))

    def write(self) -> None:
        """Write the summary of all folds once they are done."""
        if len(self.rows) == len(self.points):
            write_json(self.folder / "summary.json", self.summary())

    def summary(self) -> Row:
        """Return the summary of all folds."""
        return combine(self.sorted_rows()) | {"data": self.options.data, "run_dir": str(self.folder)}

    def left(self) -> str | None:
        """Return how many folds are saved and how to resume; None if there is nothing."""
        finished = len(list(self.folder.glob("fold-*/summary.json")))
        if not finished and not any(any(self.folder.glob(f"fold-*/{part}")) for part in ("checkpoints/*.ckpt", "model")):
            return None
        command = f"zoo fit --resume {shlex.quote(str(self.folder))}"
        return f"what was trained is kept, {finished} of {len(self.points)} folds are finished, go on with: {command}"


def cross_validate(options: Fit) -> dict[str, Any]:
    """Train every fold in its own folder and return their summary, which is also written to ``summary.json``.

    On resume, folds that are finished are read, and the one that was under way continues from its checkpoint.
    """
    options = resolve(options)
    if (summary := finished_run(options)) is not None:
        return summary
    folds = [fold(options, number) for number in range(options.folds or 0)]
    check(options, folds)
    with claim(options) as folder:
        try:
            return _train(folder, folds, options)
        finally:
            if not any(folder.path.glob("fold-*")):
                folder.discard()


def _train(folder: RunFolder, folds: list[Fit], options: Fit) -> dict[str, Any]:
    grid = Folds(folder.path, folds, options, folder.resumed)
    write_config(folder.path, options)
    try:
        execute(grid, Here(grid.train))
    except Interrupted:
        raise
    except KeyboardInterrupt as stop:
        raise Interrupted(f"stopped; {grid.left() or NOTHING_KEPT}", signal.SIGINT) from stop
    grid.write()
    return grid.summary()


def check(options: Fit, folds: list[Fit]) -> None:
    """Check the number of folds, the Trainer's arguments, and that the data have no split of their own."""
    devices, taken = options.trainer["devices"], {"fold", "folds"} & Spec.parse(options.data or "").options.keys()
    check_rules((str(devices) == "1", f"--folds trains on one device, not on --trainer.devices {devices}: leave it out"))
    check_trainer(options.trainer)
    check_rules(
        (len(folds) >= 2, f"folds={options.folds}: use 2 or more, 10 as in the papers"),
        (not taken, f"'{options.data}' sets {' and '.join(sorted(taken))}: leave that to --folds {options.folds}"),
    )
    if not has_folds(options) or load_data(folds[0]).has_split:
        raise InputError(f"'{options.data}' comes with a split of its own: leave --folds out", code="conflict")


def has_folds(options: Fit) -> bool:
    """Return whether the data can be cut into folds."""
    entry, _ = registry.resolve("zoo.datasets", options.data or "")
    return "folds" in signature(registry.load(entry)).parameters


def fold(options: Fit, number: int) -> Fit:
    """Return the options of one fold as an ordinary run, which its config.yaml repeats."""
    spec = Spec.parse(options.data or "")
    return replace(options, folds=None, data=str(Spec(spec.name, spec.options | {"folds": options.folds, "fold": number})))


def combine(summaries: list[Row]) -> Row:
    """Combine the summaries of all folds into one."""
    names = list(summaries[0]["metrics"])
    columns = {name: [row["metrics"][name] for row in summaries] for name in names}
    means = {name: None if None in column else sum(column) / len(column) for name, column in columns.items()}
    return {
        **{key: summaries[0][key] for key in _SHARED},
        "validation": _mean_validation(summaries),
        "metrics": means,
        "std": {name: spread(column, means[name]) for name, column in columns.items()},
        "folds": [row["metrics"] for row in summaries],
        "seconds": round(sum(row["seconds"] for row in summaries), 2),
        "epochs": max(row["epochs"] for row in summaries),
        "data_sha256": [row["data_sha256"] for row in summaries],
    }


def _mean_validation(summaries: list[Row]) -> Row | None:
    """Average the validation metric that chose the epoch of every fold; None if one fold has none."""
    chosen = [row.get("validation") or {"value": None} for row in summaries]
    if any(validation["value"] is None for validation in chosen):
        return None
    mean = sum(validation["value"] for validation in chosen) / len(chosen)
    return {"metric": chosen[0]["metric"], "mode": chosen[0]["mode"], "value": mean}


def spread(column: list[float], mean: float | None) -> float | None:
    """Return the sample standard deviation between folds."""
    return None if mean is None else math.sqrt(sum((value - mean) ** 2 for value in column) / (len(column) - 1))
