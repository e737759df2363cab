"""``zoo fit``, ``average`` and ``recover``: check names and flags, then import torch and train."""

import json
import shlex
import sys
from dataclasses import asdict
from typing import Any

from zoo.cli.result import Result
from zoo.training.options import Average, Fit
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
    from zoo.training.fit import fit
    from zoo.training.summary import print_summary

    summary = fit(options)
    if is_first_process():
        print_summary(summary)


def average(run: str, *, options: Average) -> Result:
    """Average the last checkpoints of a run and test the result; train with --keep first.

    Args:
        run: A run (runs/NAME) that was trained with --keep.
    """
    from zoo.training.average import average

    return Result(average(run, options), print_average)


def print_average(result: dict[str, Any]) -> None:
    """Print the metrics of the averaged model next to those of its run."""
    from zoo.checkpoint.card import number
    from zoo.report import plain_console, plain_table

    table = plain_table("", "the run", f"mean of {len(result['averaged'])}")
    for title, split in (("validation", "validation"), ("test", "metrics")):
        for name, value in result[split].items():
            table.add_row(f"{title} {name}", number(result["before"][split].get(name)), number(value))
    plain_console().print(table)
    print(f"the model is in {result['folder']}, use it like a run: zoo test {shlex.quote(result['folder'])}")


def recover(run: str) -> Result:
    """Save the model of a killed or crashed run from its best checkpoint.

    Args:
        run: The folder of the run (runs/NAME).
    """
    from zoo.training.resume import recover

    recovered = recover(run)
    model = f"the model of epoch {recovered['epoch']} is in {recovered['folder']}"
    return Result(recovered, f"{model}, not tested yet: zoo test {shlex.quote(run)}")
