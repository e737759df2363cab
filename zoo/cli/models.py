"""``zoo test``, ``validate``, ``predict`` and ``generate``: thin callers of `zoo.Model`."""

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
from zoo.tasks.decoding.options import Decoding
from zoo.training.processes import is_first_process

SPLITS = {"test": "test", "validate": "val"}
RUN = "a run (runs/NAME), a model folder, or a name of zoo list checkpoints, hf:owner/name@revision, https://..."
INPUT = (
    "for a model of images an image file or a folder of them; for one of text a text in quotes, a file with one text a line, a "
    "folder of such files, or - for standard input (the default if something is piped in); pairs are two texts, in a file with "
    "a tab between"
)
PACKED = (".gz", ".xz")


@dataclass
class Use:
    """Where and how a trained model computes.

    Args:
        device: Where to compute: auto, cpu, cuda, cuda:1 or mps; auto is the best that is there.
        decoding: How texts are generated; what is not given is as when the model was trained.
    """

    device: str = "auto"
    decoding: Decoding = field(default_factory=Decoding)


@dataclass
class Generate(Use):
    """Texts that a trained model generates.

    Args:
        num_samples: Texts to generate.
    """

    num_samples: int = 1


@dataclass
class Predict(Use):
    """Predictions of a trained model.

    Args:
        batch_size: Examples per step.
        top: Labels to show for each input of a classifier, the most probable first.
    """

    batch_size: int = 64
    top: int = 1


@dataclass
class Evaluate(Use):
    """Evaluation of a trained model.

    Args:
        batch_size: Examples per step.
        data: Spec of the data set; by default what the model was trained on.
        num_workers: Worker processes that load data; 0 loads in the main process.
        trainer: Arguments of Lightning's Trainer, such as --trainer.limit_test_batches.
    """

    batch_size: int = 64
    data: str | None = None
    num_workers: int = 0
    trainer: dict[str, Any] = field(default_factory=dict)


def make_parser(command: str) -> Parser:
    """Return the parser of any of the four commands."""
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
    """Load a model and print what it answers."""
    return {"predict": predict, "generate": generate}.get(command, evaluate)(command, values)


def check_local(run: str | Path) -> None:
    """Refuse to fetch data because the configuration of a model folder without its run, perhaps a stranger's, names them."""
    if data := to_fetch(run):
        raise InputError(f"'{run}' was trained on {data}, which may have to be fetched: allow it with --data {quote(data)}")


def to_fetch(run: str | Path) -> str | None:
    """Return the data set that a model folder without its run names, if it may have to be fetched."""
    from zoo.checkpoint import find, read_config

    folder = find(run)
    data = read_config(folder)["data"]
    if data is None or any((parent / "config.yaml").is_file() for parent in folder.absolute().parents[:2]):
        return None
    entry, spec = registry.resolve("zoo.datasets", data)
    parameter = signature(registry.load(entry)).parameters.get("path")
    here = parameter is None or parameter.default is not None or spec.options.get("path") is not None
    return None if here else str(data)


def evaluate(command: str, values: dict[str, Any]) -> int:
    """Print the metrics of a run on its test or validation split."""
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
    """Print one metric a line, the values in one column."""
    from zoo.checkpoint.card import number

    width = max(map(len, metrics), default=0)
    print("\n".join(f"{split} {name:<{width}}  {number(value)}" for name, value in metrics.items()))


def predict(command: str, values: dict[str, Any]) -> int:
    """Print the prediction for every input as tab-separated lines or as JSON lines."""
    inputs = values["input"] or ([] if sys.stdin is None or sys.stdin.isatty() else ["-"])
    if not inputs:
        raise InputError("nothing to predict: give image files, a text in quotes, or a file (see zoo predict --help)")
    from zoo.inference.model import load

    quiet()
    model = load(values["run"], device=values["device"])
    options = {"batch_size": values["batch_size"], "truncation": values["truncate"], "top": values["top"]}
    errors: list[InputError] = []
    count = 0
    rows = model.predict_iter(inputs, stdin=sys.stdin, on_error=errors.append, **options, **values["decoding"])
    for count, row in enumerate(watched(rows, inputs), 1):  # noqa: B007 (counts the rows)
        print(to_json(row, ensure_ascii=False) if values["json"] else line(row), flush=True)
    if errors and not count:
        raise errors[0]
    for error in errors:
        print(f"zoo: {printable(str(error))}", file=sys.stderr)
    return 1 if errors else 0


def line(row: dict[str, Any]) -> str:
    """Write a prediction as one line: the columns, or of a generative model the generated text alone."""
    if "target" in row:
        return " ".join(str(row["target"]).splitlines())
    if top := row.get("top"):
        row = {name: value for name, value in row.items() if name not in ("label", "probability", "top")}
        return "\t".join([*map(cell, row.values()), *(f"{best['label']}\t{cell(best['probability'])}" for best in top)])
    return "\t".join(cell(value) for value in row.values())


def cell(value: Any) -> str:
    """Write a value of a prediction row."""
    if isinstance(value, float):
        return f"{value:.4f}"
    return ", ".join(map(cell, value)) if isinstance(value, list) else str(value)


def watched(rows: Iterable[dict[str, Any]], inputs: list[str]) -> Iterator[dict[str, Any]]:
    """Show a progress bar on the terminal while the rows go elsewhere."""
    if sys.stdout.isatty() or not sys.stderr.isatty():
        yield from rows
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Rich would put what is printed above its bar: on the terminal, and not where the user sends it.
    options: dict[str, Any] = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
    with Progress(*columns, console=Console(stderr=True), **options) as progress:
        yield from progress.track(rows, total=rows_in(inputs), description="predicting")


def rows_in(inputs: list[str]) -> int | None:
    """Count the rows of inputs, images and lines of plain files; None if that cannot be known."""
    from zoo.tasks.inputs import IMAGES

    try:
        if not all(Path(word).is_file() and Path(word).suffix not in PACKED for word in inputs):
            return None
    except OSError:  # a text may be longer than a name can be
        return None
    files = [Path(word) for word in inputs]
    texts = [file.read_bytes() for file in files if file.suffix.lower() not in IMAGES]
    return len(files) + sum(text.removesuffix(b"\n").count(b"\n") for text in texts)


def generate(command: str, values: dict[str, Any]) -> int:
    """Print a text token by token; several samples one after the other."""
    count, decoding = values["num_samples"], values["decoding"]
    if count < 1:
        raise InputError(f"--num-samples {count}: must be a whole number from 1")
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
    """Return the prompt that was given, or that of standard input for ``-``."""
    if word == "-":
        word = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff").removesuffix("\n")
    if word and any("\udc80" <= letter <= "\udcff" for letter in word):
        raise InputError("--prompt: bytes that are not UTF-8; give the text as UTF-8")
    return word
