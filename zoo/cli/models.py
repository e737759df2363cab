"""``zoo test``, ``validate``, ``predict`` and ``generate``: the methods of `zoo.Model` as commands."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import Any

from zoo import registry
from zoo.cli.commands import quiet, show, to_json
from zoo.cli.parser import Parser
from zoo.errors import InputError, printable
from zoo.registry import build_options
from zoo.tasks.options import Decoding
from zoo.training.processes import is_first_process

SPLITS = {"test": "test", "validate": "val"}
RUN = "a run (runs/NAME), a model folder, or a name of zoo list checkpoints, hf:owner/name@revision, https://..."
INPUT = (
    "image models: image files or folders; text models: a quoted text, a file with one text per line, a folder of such files, "
    "or - for standard input (the default if input is piped); pairs: two texts, separated by a tab in files"
)
PACKED = (".gz", ".xz")


@dataclass
class Use:
    """Device and decoding options of a trained model.

    Args:
        device: Device: auto, cpu, cuda, cuda:1 or mps; auto uses the best available one.
        decoding: Decoding options; the defaults are those of training.
    """

    device: str = "auto"
    decoding: Decoding = field(default_factory=Decoding)


@dataclass
class Generate(Use):
    """Generation with a trained model.

    Args:
        num_samples: Number of texts to generate.
    """

    num_samples: int = 1


@dataclass
class Predict(Use):
    """Predictions of a trained model.

    Args:
        batch_size: Examples per step.
        top: Number of labels to print per input of a classifier, the most probable first.
    """

    batch_size: int = 64
    top: int = 1


@dataclass
class Evaluate(Use):
    """Evaluation of a trained model.

    Args:
        batch_size: Examples per step.
        data: Spec of the data set; by default that of training.
        num_workers: Number of data loader processes; 0 loads in the main process.
        trainer: Arguments of Lightning's Trainer, such as --trainer.limit_test_batches.
    """

    batch_size: int = 64
    data: str | None = None
    num_workers: int = 0
    trainer: dict[str, Any] = field(default_factory=dict)


def make_parser(command: str) -> Parser:
    """Return the parser of a command."""
    if command in SPLITS:
        parser = Parser(command, f"Evaluate a trained model on the {SPLITS[command]} split.", Evaluate).positional("run", RUN)
    elif command == "predict":
        parser = Parser(command, "Classify images or texts with a trained model, or translate texts.", Predict)
        parser.positional("run", RUN).positional("input", INPUT, "*")
        parser.switch("--truncate", "truncate texts that are longer than the model reads")
    else:
        parser = Parser(command, "Generate text with a trained model.", Generate)
        parser.positional("run", RUN)
        parser.value("--prompt", "prompt or source text; - reads standard input")
    each = {"predict": "one JSON object per line", "generate": "one JSON object per text"}.get(command, "JSON")
    return parser.switch("--json", f"print {each}").leave_open("decoding")


def run(command: str, values: dict[str, Any]) -> int:
    """Load a model and print its metrics, predictions or texts."""
    return {"predict": predict, "generate": generate}.get(command, evaluate)(command, values)


def check_local(run: str | Path) -> None:
    """Raise `InputError` if the data set of an untrusted model folder, see `to_fetch`, would be downloaded."""
    if data := to_fetch(run):
        raise InputError(
            f"'{run}' was trained on {data}, which may have to be downloaded: confirm it with --data {quote(data)}"
        )


def to_fetch(run: str | Path) -> str | None:
    """Return the data set of a model folder that is not part of a run, if it may have to be downloaded."""
    from zoo.checkpoint import find, read_config

    folder = find(run)
    data = read_config(folder)["data"]
    if data is None or any((parent / "config.yaml").is_file() for parent in folder.absolute().parents[:2]):
        return None
    entry, spec = registry.resolve("zoo.datasets", data)
    parameter = signature(registry.load(entry)).parameters.get("path")
    is_local = parameter is None or parameter.default is not None or spec.options.get("path") is not None
    return None if is_local else str(data)


def evaluate(command: str, values: dict[str, Any]) -> int:
    """Print the metrics of a model on its test or validation split."""
    source, as_json, decoding, split = values.pop("run"), values.pop("json"), values.pop("decoding"), SPLITS[command]
    options = build_options(Evaluate, values)
    from zoo.hub.sources import locate
    from zoo.inference.model import load
    from zoo.training.trainer import check_trainer

    quiet()
    run = locate(source)
    if options.data is None:
        check_local(run)
    sizes = {"batch_size": options.batch_size, "num_workers": options.num_workers}
    trainer = check_trainer(options.trainer)
    metrics = load(run, device=options.device).evaluate(options.data, split, trainer=trainer, **sizes, **decoding)
    if is_first_process():
        show(metrics, as_json, partial(print_metrics, split))
    return 0


def print_metrics(split: str, metrics: dict[str, float]) -> None:
    """Print one metric per line with aligned values."""
    from zoo.checkpoint.card import number

    width = max(map(len, metrics), default=0)
    print("\n".join(f"{split} {name:<{width}}  {number(value)}" for name, value in metrics.items()))


def predict(command: str, values: dict[str, Any]) -> int:
    """Print the prediction for every input as tab-separated lines or as JSON lines."""
    inputs = values["input"] or ([] if sys.stdin is None or sys.stdin.isatty() else ["-"])
    if not inputs:
        raise InputError("missing INPUT: use image files, a quoted text or a text file (see zoo predict --help)")
    from zoo.inference.model import load

    quiet()
    model = load(values["run"], device=values["device"])
    options = {"batch_size": values["batch_size"], "truncation": values["truncate"], "top": values["top"]}
    errors: list[InputError] = []
    count = 0
    rows = model.predict_iter(inputs, stdin=sys.stdin, on_error=errors.append, **options, **values["decoding"])
    for count, row in enumerate(with_progress(rows, inputs), 1):  # noqa: B007 (counts the rows)
        print(to_json(row, ensure_ascii=False) if values["json"] else line(row), flush=True)
    if errors and not count:
        raise errors[0]
    for error in errors:
        print(f"zoo: {printable(str(error))}", file=sys.stderr)
    return 1 if errors else 0


def line(row: dict[str, Any]) -> str:
    """Format a prediction as tab-separated columns, or for a generative model as the generated text."""
    if "target" in row:
        return " ".join(str(row["target"]).splitlines())
    if top := row.get("top"):
        row = {name: value for name, value in row.items() if name not in ("label", "probability", "top")}
        return "\t".join([*map(cell, row.values()), *(f"{best['label']}\t{cell(best['probability'])}" for best in top)])
    return "\t".join(cell(value) for value in row.values())


def cell(value: Any) -> str:
    """Format a value of a prediction row."""
    if isinstance(value, float):
        return f"{value:.4f}"
    return ", ".join(map(cell, value)) if isinstance(value, list) else str(value)


def with_progress(rows: Iterable[dict[str, Any]], inputs: list[str]) -> Iterator[dict[str, Any]]:
    """Show a progress bar on stderr if it is a terminal and stdout is not."""
    if sys.stdout.isatty() or not sys.stderr.isatty():
        yield from rows
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Rich would redirect printed rows to the terminal, above its bar.
    options: dict[str, Any] = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
    with Progress(*columns, console=Console(stderr=True), **options) as progress:
        yield from progress.track(rows, total=rows_in(inputs), description="predicting")


def rows_in(inputs: list[str]) -> int | None:
    """Return the number of images and lines in input files; None if it is unknown."""
    from zoo.tasks.inputs import IMAGES

    try:
        if not all(Path(word).is_file() and Path(word).suffix not in PACKED for word in inputs):
            return None
    except OSError:  # a text may be longer than the maximum length of a file name
        return None
    files = [Path(word) for word in inputs]
    texts = [file.read_bytes() for file in files if file.suffix.lower() not in IMAGES]
    return len(files) + sum(text.removesuffix(b"\n").count(b"\n") for text in texts)


def generate(command: str, values: dict[str, Any]) -> int:
    """Print one text token by token, or several samples one after the other."""
    count, decoding = values["num_samples"], values["decoding"]
    if count < 1:
        raise InputError(f"--num-samples {count}: must be at least 1")
    prompt = read_prompt(values["prompt"])
    from zoo.inference.model import load

    quiet()
    model = load(values["run"], device=values["device"])
    task = model.generative(decoding)
    prompt = prompt or task.default_prompt()
    shown = prompt if task.continues_prompt else ""
    if count == 1 and not values["json"]:
        pieces = model.generate(prompt, stream=True, **decoding)
        print(shown, end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
        print()
        return 0
    for number, text in enumerate(model.generate(prompt, count, **decoding), 1):
        if values["json"]:
            print(to_json({"prompt": prompt, "text": text}, ensure_ascii=False))
        else:
            print(f"{'' if number == 1 else chr(10)}--- {number}\n{shown}{text}", flush=True)
    return 0


def read_prompt(word: str | None) -> str | None:
    """Return the prompt, read from standard input for ``-``."""
    if word == "-":
        word = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff").removesuffix("\n")
    if word and any("\udc80" <= letter <= "\udcff" for letter in word):
        raise InputError("--prompt: invalid UTF-8; encode the text as UTF-8")
    return word
