"""``zoo average``: the mean of a run's last weights as a model of its own."""

import json

from zoo.cli.parser import make_parser, parse
from zoo.training.options import Average, build


def run(command: str, argv: list[str]) -> int:
    """Average the last checkpoints of a run and print what that brought."""
    parser = make_parser(command, Average, "Take the mean of a run's last weights and measure it; train with --keep first.")
    parser.add_argument("run", help="a run (runs/NAME) that was trained with --keep")
    parser.add_argument("--json", action="store_true", help="print JSON")
    values = parse(parser, argv)
    place, as_json = values.pop("run"), values.pop("json")
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from zoo.checkpoint.card import number
    from zoo.training.average import average

    made = average(place, build(Average, values))
    if as_json:
        print(json.dumps(made, indent=2))
        return 0
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "the run", f"mean of {len(made['averaged'])}"):
        table.add_column(name, justify="right" if name else "left")
    for title, split in (("validation", "validation"), ("test", "metrics")):
        for name, value in made[split].items():
            table.add_row(f"{title} {name}", number(made["before"][split].get(name)), number(value))
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(table)
    console.print(f"the model is in {made['folder']}, use it like a run: zoo test {made['folder']}")
    return 0
