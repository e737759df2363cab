"""Cross-validation: a grid with one run per fold, tested on that fold and trained on the others."""

import math
import shlex
from contextlib import ExitStack
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.atomic import write_json
from zoo.errors import InputError
from zoo.registry import Spec
from zoo.training.fit import run_fit
from zoo.training.folder import claim, finished_run, read_summary, write_config
from zoo.training.options import OBJECT, Fit, config_values
from zoo.training.processes import Signals
from zoo.training.resolve import load_data, resolve
from zoo.training.session import NOTHING_SAVED
from zoo.training.summary import Summary
from zoo.training.trainer import check_trainer
from zoo_experiments.grid import Grid, InProcess, Point, check_saved, check_size, execute, log_of, processes, with_resume_hint
from zoo_experiments.options import Execution

_NEEDED = ("backbone", "algebra", "seed", "task", "versions", "device", "seconds", "epochs", "data_sha256")
"""What the summary of a fold must have."""


class Folds(Grid[Summary]):
    """The folds of a run."""

    def __init__(self, folder: Path, options: Fit, folds: list[Fit]) -> None:
        super().__init__(folder, [Point(f"fold-{number:02d}", {}, fold) for number, fold in enumerate(folds, 1)])
        self.options = options

    def train(self, point: Point) -> None:
        """Train or resume a fold in this process."""
        run_fit(replace(point.fit, run_dir=str(self.path(point)), resume="auto"))

    def read_row(self, point: Point) -> Summary:
        """Read the summary of a fold."""
        return read_summary(self.path(point), _NEEDED)

    def write(self) -> None:
        """Write the summary of all folds once they are finished."""
        if len(self.rows) == len(self.points):
            write_json(self.folder / "summary.json", self.summary().to_json())

    def summary(self) -> Summary:
        """Return the summary of all folds."""
        return replace(combine(self.sorted_rows()), data=self.options.data, run_dir=str(self.folder))

    def reasons(self) -> dict[str, str]:
        """Return the reasons of the failed folds, without their logs if the folder has no progress and is discarded."""
        if any(self.folder.glob("fold-*")):
            return self.failed
        return {name: reason.removesuffix(f" (log: {log_of(self, name)})") for name, reason in self.failed.items()}

    def resume_text(self) -> str:
        """Say how many folds are finished and how to resume."""
        if not any(self.folder.glob("fold-*")):
            return NOTHING_SAVED
        finished = len(list(self.folder.glob("fold-*/summary.json")))
        command = f"zoo fit --resume {shlex.quote(str(self.folder))}"
        return f"progress is saved, {finished} of {len(self.points)} folds are finished; resume with: {command}"


def cross_validate(options: Fit) -> Summary:
    """Train every fold in its own folder and return their summary, which is also written to ``summary.json``.

    Resuming reads the finished folds and continues the interrupted one from its checkpoint.
    """
    options = resolve(options)
    if (summary := finished_run(config_values(options), options.run_dir, options.resume)) is not None:
        return summary
    digest = check_folds(options)
    folds = [fold(options, number) for number in range(options.folds or 0)]
    with ExitStack() as stack:
        folder = stack.enter_context(claim(config_values(options), options.run_dir, options.resume))
        grid = Folds(folder.path, options, folds)
        stack.enter_context(with_resume_hint(grid.resume_text))
        try:
            grid.load()
            first = grid.rows.get(grid.points[0].name)
            if first is not None and first.data_sha256 != digest:
                text = f"the data of '{folder.path}' have changed since it started: restore them, or start a new run"
                raise InputError(text, code="mismatch")
            write_config(folder.path, config_values(options))
            if options.jobs == 1:
                execute(grid, InProcess(grid.train))
            else:
                with Signals(), processes(Execution(options.jobs)) as executor:
                    execute(grid, executor)
            failures = "; ".join(f"{name} failed: {reason}" for name, reason in grid.reasons().items())
            if failures:
                raise InputError(f"{failures}; {grid.resume_text()}", code="failed")
            grid.write()
        finally:
            if not any(folder.path.glob("fold-*")):
                folder.discard()
    return grid.summary()


def check_folds(options: Fit) -> str | list[str] | None:
    """Check the number of folds, the Trainer's arguments, and that the data have no predefined split.

    Returns:
        The digest of the data of the first fold, if they have one.
    """
    devices = options.trainer["devices"]
    if str(devices) != "1":
        raise InputError(f"--folds trains on one device, not on --trainer.devices {devices}", code="conflict")
    if OBJECT in str(config_values(options)["trainer"]):  # a fold would start from the state that the one before has left
        raise InputError("--folds: describe callbacks and loggers by class_path, because every fold builds its own")
    check_saved(options)
    check_trainer(options.trainer)
    check_size(options.folds or 0)
    entry, spec = registry.resolve("zoo.datasets", options.data or "")
    for name in spec.options.keys() & {"folds", "fold"}:
        text = f"--folds trains every fold, not {name}={spec.options[name]} of the data: leave one of them out"
        raise InputError(text, code="conflict")
    if "folds" not in signature(registry.load(entry)).parameters:
        raise InputError(f"--folds cuts texts into folds, not '{options.data}': leave --folds out", code="conflict")
    data = load_data(fold(options, 0))
    if data.has_split:
        raise InputError(f"'{options.data}' comes with its own split: leave --folds out", code="conflict")
    return getattr(data.info, "sha256", None)


def fold(options: Fit, number: int) -> Fit:
    """Return the options of one fold as those of an ordinary run."""
    spec = Spec.parse(options.data or "")
    return replace(
        options, folds=None, jobs=1, data=str(Spec(spec.name, spec.options | {"folds": options.folds, "fold": number}))
    )


def combine(summaries: list[Summary]) -> Summary:
    """Combine the summaries of all folds into one.

    ``parameters`` and ``vectors_found`` depend on the vocabulary of a fold; they are those of the first.
    """
    first = summaries[0]
    columns = {name: [row.metrics[name] for row in summaries] for name in first.metrics}
    chosen = first.validation or {}
    value, _ = mean_std([(row.validation or {"value": None})["value"] for row in summaries])
    reasons = [(number, row.undefined.items()) for number, row in enumerate(summaries, 1)]
    return replace(
        first,
        checkpoint=None,
        resumed_from=None,
        validation=None if value is None else {"metric": chosen["metric"], "mode": chosen["mode"], "value": value},
        metrics={name: mean_std(column)[0] for name, column in columns.items()},
        std={name: mean_std(column)[1] for name, column in columns.items()},
        undefined={name: f"in fold {number}, {reason}" for number, items in reasons for name, reason in items},
        folds=[row.metrics for row in summaries],
        seconds=round(sum(row.seconds for row in summaries), 2),
        epochs=max(row.epochs for row in summaries),
        data_sha256=[str(row.data_sha256) for row in summaries],
    )


def mean_std(column: list[Any]) -> tuple[float | None, float | None]:
    """Return the mean and the sample standard deviation over folds; None if a fold has no finite value."""
    if None in column:
        return None, None
    mean = sum(column) / len(column)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in column) / (len(column) - 1))
