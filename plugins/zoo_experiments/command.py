"""The commands ``zoo sweep``, ``zoo frontier`` and ``zoo lottery``."""

import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from zoo.cli.configuration import read_config
from zoo.cli.result import Result
from zoo.errors import InputError
from zoo.training.processes import is_first_process
from zoo_experiments.options import Lottery, Sweep


def sweep(file: str, *, options: Sweep) -> Result:
    """Train the missing runs of a grid in one file; each is a run of zoo fit in its own folder.

    Args:
        file: YAML with base, axes and exclude, see docs/sweeps.md.
    """
    from zoo_experiments.sweep import sweep

    results = sweep(read_config(file), file, options, say=say)
    return Result(results, lambda _: print_results("sweep", results, repeated("sweep", file, options)), bool(results["failed"]))


def frontier(file: str, *, options: Sweep) -> Result:
    """Compare networks over algebras with real networks of equal size, each at its best learning rate.

    Args:
        file: YAML with base and the axes net, optimizer.lr and seed.
    """
    if options.only:
        raise InputError("--only is not supported here: remove networks from the file", code="unsupported")
    from zoo_experiments.frontier import frontier

    results = frontier(read_config(file), file, options, say=say)
    return Result(
        results, lambda _: print_results("frontier", results, repeated("frontier", file, options)), bool(results["failed"])
    )


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def repeated(command: str, file: str, options: Sweep) -> str:
    """Format the command with its options that are not at their defaults."""
    given = {f.name: getattr(options, f.name) for f in fields(Sweep) if getattr(options, f.name) != f.default}
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["zoo", command, file, *flags])


def print_results(command: str, results: dict[str, Any], repeat: str) -> None:
    """Print and write the report of a sweep or frontier; print the failed runs and the next commands."""
    from zoo.cli.report import write_report
    from zoo.registry import create

    rows, failed = results["rows"], results["failed"]
    if rows:
        folder = Path(results["run_dir"]) / "report"
        try:
            report = create("zoo.reports", command, [results["run_dir"]])
            write_report(report, None, folder)
            print(f"{report.text}\nwritten to {folder}: {', '.join(report.files)}")
        except InputError as error:  # the runs have measured nothing
            print(error)
    for name in failed:
        print(f"failed: {name}{f': {failed[name]}' if isinstance(failed, dict) else ''}")
    print("\nnext:")
    if failed:
        print(f"  {repeat}  # retry the failed runs")
    if rows and command == "sweep":
        run = f"{shlex.quote(results['run_dir'])}/{rows[0]['folder']}{'/fold-01' if 'std' in rows[0] else ''}"
        print(f"  zoo {'test' if rows[0]['metrics'] else 'validate'} {run}  # each is an ordinary run of zoo fit")
    elif rows:
        print(f"  zoo report sweep {shlex.quote(results['run_dir'])}  # all runs")


def lottery(*, options: Lottery, print_config: bool = False) -> None:
    """Find lottery tickets of one or more algebras: iterative magnitude pruning with rewinding.

    Args:
        print_config: Print the effective configuration as YAML and stop.
    """
    if print_config:
        import yaml

        from zoo.training.options import config_values
        from zoo_experiments.arms import check_lottery

        yaml.safe_dump(config_values(check_lottery(options)[0]), sys.stdout, sort_keys=False)
        return
    from zoo_experiments.lottery import lottery

    results = lottery(options)
    if results and is_first_process():
        print_tickets(results)


def print_tickets(results: dict[str, Any]) -> None:
    """Print the metric of every arm by round, its mean over seeds, and the next commands."""
    from zoo.checkpoint.card import number
    from zoo.report import plain_console, plain_table

    rows, name = results["rows"], results["metric"]
    split = "test" if all(name in row["test"] for row in rows) else "val"
    arms = list(dict.fromkeys((row["algebra"], row["control"]) for row in rows))
    table = plain_table("round", "left", *(f"{algebra}{f' ({control})' if control else ''}" for algebra, control in arms))
    seeds = len({row["seed"] for row in rows})
    weights = {row["algebra"]: f"{row['weights']:,}" for row in rows}
    table.add_row("weights", "", *(weights[algebra] for algebra, _ in arms))
    for index in sorted({row["round"] for row in rows}):
        of_round = [row for row in rows if row["round"] == index]
        cells = [f"{of_round[0]['survivors'] / of_round[0]['weights']:.1%}"]
        for arm in arms:
            values = [row[split].get(name) for row in of_round if (row["algebra"], row["control"]) == arm]
            few = f" ({len(values)})" if len(values) < seeds else ""  # the mean of the remaining arms is optimistic
            cells.append(f"{number(sum(values) / len(values))}{few}" if values and None not in values else "")
        table.add_row(str(index), *cells)
    console = plain_console()
    console.print()
    console.print(table)
    mean = f", mean of {seeds} seeds or of the number in brackets" if seeds > 1 else ""
    console.print(f"{split} {name}{mean}; weights: prunable weights; left: the remaining share of them")
    for note in results["stopped"]:
        control = f" ({note['control']})" if note["control"] else ""
        console.print(f"{note['algebra']}{control}, seed {note['seed']}, ended with round {note['round']}: {note['reason']}")
    folder = shlex.quote(results["run_dir"])
    console.print(f"results are in {results['run_dir']}\n\nnext:")
    console.print(f"  zoo report lottery {folder}  # the curves, in percent of the real network's weights")
    ticket = [row for row in rows if row["control"] is None][-1]
    console.print(f"  zoo test {folder}/{ticket['folder']}  # every ticket is a run")
    once = results["pruning"]["pattern"] is not None  # a later round would prune nothing
    more = f"--seeds {seeds + 1}  # or more" if once else f"--rounds {results['rounds'] + 3}  # or more --seeds,"
    console.print(f"  zoo lottery --resume {folder} {more} --compare, --controls")
