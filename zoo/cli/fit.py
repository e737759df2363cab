"""``zoo fit``, ``average`` and ``recover``: check names and flags, then import torch and train."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zoo.cli.commands import quiet, show
from zoo.cli.parser import Parser, Words
from zoo.errors import InputError
from zoo.training.options import Average, Fit, build, check_single
from zoo.training.processes import is_first_process


class RunParser(Parser):
    """Parser for a run or an experiment; ``--resume RUN`` reads its config.yaml before other files and flags."""

    def __init__(self, command: str, text: str, options: type) -> None:
        super().__init__(command, text, options)
        self.short["--from"] = "init_from"
        self.switch("--print-config", "print the effective configuration as YAML and stop")

    def split(self, argv: list[str]) -> Words:
        """Split the words, and prepend the configuration of a resumed run to the files."""
        words = super().split(argv)
        run = words.flags.get("resume")
        if run in (None, "auto", "null"):
            return words
        if "run_dir" in words.flags:
            raise InputError("--resume RUN resumes the run in its own folder: remove --run-dir", code="conflict")
        config = Path(run).expanduser() / "config.yaml"
        if self.command == "fit":
            check_single(run)
        if not config.is_file():
            raise InputError(f"--resume {run}: not a run, {config} is missing", code="missing")
        return words._replace(files=[str(config), *words.files])


def make_parser(command: str) -> Parser:
    """Return the parser of a command."""
    if command == "recover":
        text = "Save the model of a killed or crashed run from its best checkpoint."
        return Parser(command, text).positional("run", "the folder of the run (runs/NAME)").switch("--json", "print JSON")
    if command == "average":
        parser = Parser(command, "Average the last checkpoints of a run and test the result; train with --keep first.", Average)
        return parser.positional("run", "a run (runs/NAME) that was trained with --keep").switch("--json", "print JSON")
    return RunParser(command, "Train and test a network over an algebra.", Fit)


def run(command: str, values: dict[str, Any]) -> int:
    """Train a network, average its last checkpoints, or recover its model, and print the result."""
    if command != "fit":
        return average(values) if command == "average" else recover(values)
    if values.pop("print_config"):
        print_config(build(Fit, values))
        return 0
    from zoo.training.fit import fit
    from zoo.training.summary import print_summary

    quiet()
    options = build(Fit, values)
    summary = fit(options)
    if is_first_process():
        print_summary(summary)
    return 0


def print_config(options: Fit) -> None:
    """Print the effective configuration of a run, including the defaults of its backbone, as YAML."""
    import yaml

    from zoo.training.resolve import effective

    values = {key: value for key, value in asdict(effective(options)).items() if value is not None}
    yaml.safe_dump(json.loads(json.dumps(values)), sys.stdout, sort_keys=False)  # tuples become lists


def average(values: dict[str, Any]) -> int:
    """Average the last checkpoints of a run and print the metrics of both models."""
    run, as_json = values.pop("run"), values.pop("json")
    from zoo.training.average import average

    quiet()
    return show(average(run, build(Average, values)), as_json, print_average)


def print_average(result: dict[str, Any]) -> None:
    """Print the metrics of the averaged model next to those of its run."""
    from zoo.checkpoint.card import number
    from zoo.report import plain_console, plain_table

    table = plain_table("", "the run", f"mean of {len(result['averaged'])}")
    for title, split in (("validation", "validation"), ("test", "metrics")):
        for name, value in result[split].items():
            table.add_row(f"{title} {name}", number(result["before"][split].get(name)), number(value))
    console = plain_console()
    console.print(table)
    console.print(f"the model is in {result['folder']}, use it like a run: zoo test {shlex.quote(result['folder'])}")


def recover(values: dict[str, Any]) -> int:
    """Save the model of an interrupted run and print its folder."""
    from zoo.training.resume import recover

    quiet()
    recovered = recover(values["run"])
    model = f"the model of epoch {recovered['epoch']} is in {recovered['folder']}"
    return show(recovered, values["json"], lambda _: print(f"{model}, not tested yet: zoo test {shlex.quote(values['run'])}"))
