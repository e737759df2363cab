"""Print the metrics of an averaged model and of a measurement."""

import shlex
from typing import Any

from zoo.checkpoint.card import number
from zoo.report import plain_console, plain_table


def print_average(made: dict[str, Any]) -> None:
    """Print the metrics of a mean of checkpoints beside those of its run."""
    table = plain_table("", "the run", f"mean of {len(made['averaged'])}")
    for title, split in (("validation", "validation"), ("test", "metrics")):
        for name, value in made[split].items():
            table.add_row(f"{title} {name}", number(made["before"][split].get(name)), number(value))
    console = plain_console()
    console.print(table)
    console.print(f"the model is in {made['folder']}, use it like a run: zoo test {shlex.quote(made['folder'])}")


def print_metrics(split: str, metrics: dict[str, float]) -> None:
    """Print one metric a line, the values in one column."""
    width = max(map(len, metrics), default=0)
    print("\n".join(f"{split} {name:<{width}}  {number(value)}" for name, value in metrics.items()))
