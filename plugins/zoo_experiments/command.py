"""The commands ``zoo sweep``, ``zoo frontier`` and ``zoo lottery``."""

import shlex
from functools import partial
from pathlib import Path
from typing import Any

from zoo.cli.parser import read_config
from zoo.cli.result import Result
from zoo.errors import InputError
from zoo.training.processes import is_first_process
from zoo_experiments.options import Experiment, Lottery, Sweep


def sweep(file: str, *, options: Sweep) -> Result:
    """Train the missing runs of a grid in one file; each is a run of zoo fit in its own folder.

    Args:
        file: YAML with base, axes and exclude, see docs/sweeps.md.
    """
    grid = read_config(file)
    from zoo_experiments.sweep import sweep

    results = sweep(grid, file, options, say=partial(print, flush=True))
    return Result(results, lambda _: print_results("sweep", results), bool(results["failed"]))


def frontier(file: str, *, options: Experiment) -> Result:
    """Compare networks over algebras with real networks of equal size, each at its best learning rate.

    Args:
        file: YAML with base and the axes net, optimizer.lr and seed.
    """
    grid = read_config(file)
    from zoo_experiments.frontier import frontier

    results = frontier(grid, file, options, say=partial(print, flush=True))
    return Result(results, lambda _: print_results("frontier", results), bool(results["failed"]))


def print_results(command: str, results: dict[str, Any]) -> None:
    """Print and write the report of an experiment; print the failed runs and the next commands."""
    from zoo.cli.report import write_report
    from zoo.registry import create

    rows, failed, left = results["rows"], results.get("failed", {}), results.get("left", 0)
    name, folder = results["run_dir"], shlex.quote(results["run_dir"])
    if rows:
        try:
            report = create("zoo.reports", command, [name])
            write_report(report, None, Path(name, "report"))
            print(f"{report.text}\nwritten to {name}/report: {', '.join(report.files)}")
        except InputError as error:  # the runs have measured nothing
            print(error)
    for run in failed:
        print(f"failed: {run}{f': {failed[run]}' if isinstance(failed, dict) else ''}")
    print("\nnext:")
    if failed:
        print("  repeat the command to retry the failed runs")
    if left:
        print(f"  zoo lottery --resume {folder}  # retries the failed rounds, {left} to go")
    if command == "lottery":
        print(f"  zoo test {folder}/{rows[-1]['folder']}  # every round is a run")
        print(f"  zoo lottery --resume {folder} --rounds {results['rounds'] + 3}  # or more --seeds, --compare, --controls")
    elif rows and command == "sweep":
        run = f"{folder}/{rows[0]['folder']}{'/fold-01' if 'std' in rows[0] else ''}"
        print(f"  zoo {'test' if rows[0]['metrics'] else 'validate'} {run}  # each is an ordinary run of zoo fit")
    elif rows:
        print(f"  zoo report sweep {folder}  # all runs")


def lottery(*, options: Lottery) -> int:
    """Find lottery tickets of one or more algebras: iterative magnitude pruning with rewinding."""
    from zoo_experiments.lottery import lottery

    results = lottery(options)
    if results and is_first_process():
        print_results("lottery", results)
    return int(results.get("left", 0) > 0)
