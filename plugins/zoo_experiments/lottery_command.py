"""Find lottery tickets: zoo lottery --backbone vit --compare real,quaternion --rounds 10."""

import shlex
import sys
from typing import Any

from zoo.cli.commands import quiet
from zoo.cli.fit import RunParser
from zoo.cli.parser import Parser
from zoo.training.options import build
from zoo.training.processes import is_first_process
from zoo_experiments.options import Lottery


def make_parser(command: str) -> Parser:
    """Return the parser of the command."""
    text = "Train, prune, rewind, train again: lottery tickets of one algebra or several; every round is a run of zoo fit."
    return RunParser(command, text, Lottery)


def run(command: str, values: dict[str, Any]) -> int:
    """Train the rounds of an experiment that are not done yet, and print what all of them came to."""
    if values.pop("print_config"):
        print_config(build(Lottery, values))
        return 0
    from zoo_experiments.lottery import lottery

    quiet()
    results = lottery(build(Lottery, values))
    if results and is_first_process():
        print_results(results)
    return 0


def print_config(options: Lottery) -> None:
    """Print the configuration that an experiment would have, everything filled in, as YAML."""
    import yaml

    from zoo.training.folder import config_values
    from zoo_experiments.arms import check

    yaml.safe_dump(config_values(check(options)[0]), sys.stdout, sort_keys=False)


def print_results(results: dict[str, Any]) -> None:
    """Print the figure of every arm by round, the mean over the seeds that have the round, and the next commands."""
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
        mine = [row for row in rows if row["round"] == index]
        cells = [f"{mine[0]['survivors'] / mine[0]['weights']:.1%}"]
        for arm in arms:
            values = [row[split].get(name) for row in mine if (row["algebra"], row["control"]) == arm]
            few = f" ({len(values)})" if len(values) < seeds else ""  # a mean over the arms that went on flatters
            cells.append(f"{number(sum(values) / len(values))}{few}" if values and None not in values else "")
        table.add_row(str(index), *cells)
    console = plain_console()
    console.print()
    console.print(table)
    mean = f", mean of {seeds} seeds, or of as many as in brackets" if seeds > 1 else ""
    console.print(f"{split} {name}{mean}; weights: those of a network's matrices; left: the share of them that survives")
    for one in results["stopped"]:
        control = f" ({one['control']})" if one["control"] else ""
        console.print(f"{one['algebra']}{control}, seed {one['seed']}, ends with round {one['round']}: {one['reason']}")
    folder = shlex.quote(results["run_dir"])
    console.print(f"everything is in {results['run_dir']}\n\nnext:")
    console.print(f"  zoo report lottery {folder}  # the curves, in percent of the real network's weights")
    ticket = [row for row in rows if row["control"] is None][-1]
    console.print(f"  zoo test {folder}/{ticket['folder']}  # a ticket is a run like any other")
    once = results["pruning"]["pattern"] is not None  # no later round would prune anything
    more = f"--seeds {seeds + 1}  # or more" if once else f"--rounds {results['rounds'] + 3}  # or more --seeds,"
    console.print(f"  zoo lottery --resume {folder} {more} --compare, --controls")
