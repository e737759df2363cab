"""Cross-validation: a grid with one run per fold, tested on that fold and trained on the others."""

import math
import shlex
import signal
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.atomic import write_json
from zoo.errors import InputError, Interrupted, check_rules
from zoo.registry import Spec
from zoo.training.fit import NOTHING_SAVED, Extension, fit
from zoo.training.folder import changed_options, claim, finished_run, read_summary, write_config
from zoo.training.options import Fit, config_values
from zoo.training.resolve import load_data, plan_run, resolve
from zoo.training.trainer import check_trainer
from zoo_experiments.executors import Here
from zoo_experiments.grid import Grid, Point, Row, execute

_OPTIONS = ("backbone", "algebra", "data", "scope", "init", "embedding", "vectors", "vectors_found", "seed")
_SHARED = (*_OPTIONS, "teacher", "task", "parameters", "equal_size", "versions", "stayed_real", "device")
"""Keys that are equal in the summaries of all folds; vectors_found, which differs a little, is that of the first."""
_PER_FOLD = ("seconds", "epochs", "data_sha256")


class Folds(Grid):
    """The folds of a run."""

    def __init__(self, folder: Path, folds: list[Fit], options: Fit, resumed: bool) -> None:
        super().__init__(folder, [Point(f"fold-{number:02d}", {"fold": number}) for number in range(1, len(folds) + 1)])
        self.options, self.folds, self.resumed = options, folds, resumed
        if resumed:
            self._check_begun()
        self.rows = {point.name: self.read_row(point) for point in self.points if self.is_finished(point)}

    def _check_begun(self) -> None:
        """Check that no fold has started with other options, since a mean is over equal runs."""
        started = {self.path(p): plan_run(self.folds[p.axes["fold"] - 1]).config for p in self.points}
        started = {folder: values for folder, values in started.items() if (folder / "config.yaml").exists()}
        for folder, wanted in {self.folder: config_values(self.options), **started}.items():
            for name, old, new in changed_options(folder, wanted):
                raise InputError(f"'{folder}' has {name}={old}, not {new}: start a new run to change it", code="mismatch")
        if (summary := self.folder / "summary.json").exists():
            raise InputError(f"the folds of '{self.folder}' are finished, see {summary}", code="conflict")

    def command(self, point: Point) -> list[str]:
        """Return the arguments of ``zoo`` that resume a fold."""
        return ["fit", "--resume", str(self.path(point))]

    def train(self, point: Point) -> None:
        """Train or resume a fold in this process."""
        fold = self.folds[point.axes["fold"] - 1]
        fold = replace(fold, run_dir=str(self.path(point)), resume="auto" if self.resumed else None)
        fit(fold, extension=Fold(self))

    def read_row(self, point: Point) -> Row:
        """Read the summary of a fold."""
        return read_summary(self.path(point), (*_SHARED, *_PER_FOLD))

    def write(self) -> None:
        """Write the summary of all folds once they are finished."""
        if len(self.rows) == len(self.points):
            write_json(self.folder / "summary.json", self.summary())

    def summary(self) -> Row:
        """Return the summary of all folds."""
        return combine(self.sorted_rows()) | {"data": self.options.data, "run_dir": str(self.folder)}

    def resume_text(self) -> str | None:
        """Say how many folds are finished and how to resume; None if nothing is saved."""
        finished = len(list(self.folder.glob("fold-*/summary.json")))
        if not finished and not any(any(self.folder.glob(f"fold-*/{part}")) for part in ("checkpoints/*.ckpt", "model")):
            return None
        command = f"zoo fit --resume {shlex.quote(str(self.folder))}"
        return f"progress is saved, {finished} of {len(self.points)} folds are finished; resume with: {command}"


class Fold(Extension):
    """Say of an interrupted fold how to resume all of them."""

    def __init__(self, grid: Folds) -> None:
        self.grid = grid

    def resume_text(self, folder: Path, trained: bool) -> str | None:
        """Return the text of the grid."""
        return self.grid.resume_text()


def cross_validate(options: Fit) -> dict[str, Any]:
    """Train every fold in its own folder and return their summary, which is also written to ``summary.json``.

    Resuming reads the finished folds and continues the interrupted one from its checkpoint.
    """
    options = resolve(options)
    if (summary := finished_run(config_values(options), options.run_dir, options.resume)) is not None:
        return summary
    folds = [fold(options, number) for number in range(options.folds or 0)]
    check_folds(options, folds)
    with claim(config_values(options), options.run_dir, options.resume) as folder:
        try:
            grid = Folds(folder.path, folds, options, folder.resumed)
            write_config(folder.path, config_values(options))
            execute(grid, Here(grid.train))
            grid.write()
        except Interrupted:
            raise
        except KeyboardInterrupt as stop:
            raise Interrupted(f"stopped; {grid.resume_text() or NOTHING_SAVED}", signal.SIGINT) from stop
        finally:
            if not any(folder.path.glob("fold-*")):
                folder.discard()
    return grid.summary()


def check_folds(options: Fit, folds: list[Fit]) -> None:
    """Check the number of folds, the Trainer's arguments, and that the data have no predefined split."""
    devices = options.trainer["devices"]
    check_rules((str(devices) == "1", f"--folds trains on one device, not on --trainer.devices {devices}"), code="conflict")
    check_trainer(options.trainer)
    check_rules((len(folds) >= 2, f"folds={options.folds}: must be 2 or more"))
    taken = {"fold", "folds"} & Spec.parse(options.data or "").options.keys()
    text = f"'{options.data}' sets {' and '.join(sorted(taken))}: leave that to --folds {options.folds}"
    check_rules((not taken, text), code="conflict")
    entry, _ = registry.resolve("zoo.datasets", options.data or "")
    if "folds" not in signature(registry.load(entry)).parameters or load_data(folds[0]).has_split:
        raise InputError(f"'{options.data}' comes with its own split: leave --folds out", code="conflict")


def fold(options: Fit, number: int) -> Fit:
    """Return the options of one fold as those of an ordinary run."""
    spec = Spec.parse(options.data or "")
    return replace(options, folds=None, data=str(Spec(spec.name, spec.options | {"folds": options.folds, "fold": number})))


def combine(summaries: list[Row]) -> Row:
    """Combine the summaries of all folds into one."""
    columns = {name: [row["metrics"][name] for row in summaries] for name in summaries[0]["metrics"]}
    validation = [row.get("validation") or {"value": None} for row in summaries]
    value, _ = mean_std([chosen["value"] for chosen in validation])
    return {
        **{key: summaries[0][key] for key in _SHARED},
        "validation": None if value is None else {key: validation[0][key] for key in ("metric", "mode")} | {"value": value},
        "metrics": {name: mean_std(column)[0] for name, column in columns.items()},
        "std": {name: mean_std(column)[1] for name, column in columns.items()},
        "folds": [row["metrics"] for row in summaries],
        "seconds": round(sum(row["seconds"] for row in summaries), 2),
        "epochs": max(row["epochs"] for row in summaries),
        "data_sha256": [row["data_sha256"] for row in summaries],
    }


def mean_std(column: list[Any]) -> tuple[float | None, float | None]:
    """Return the mean and the sample standard deviation over folds; None if a fold has no finite value."""
    if None in column:
        return None, None
    mean = sum(column) / len(column)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in column) / (len(column) - 1))
