"""``zoo test``, ``validate``, ``predict``, ``generate``, ``pull``, ``push`` and ``publish``: use and share trained models."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from zoo import registry
from zoo.checkpoint.manifest import find, number, read_manifest, verify
from zoo.cli.result import Result, to_json
from zoo.errors import InputError, printable, visible
from zoo.registry.limits import LARGEST, bounded
from zoo.tasks.options import Decoding
from zoo.training.options import Measuring


@dataclass
class Use:
    """Device and decoding options of a trained model.

    Args:
        device: Device: auto, cpu, cuda, cuda:1 or mps; auto uses the best available one.
        decoding: Decoding options; the defaults are those of training.
    """

    device: str = "auto"
    decoding: Annotated[dict[str, Any], Decoding] = field(default_factory=dict)


@dataclass
class Generate(Use):
    """Generation with a trained model.

    Args:
        num_samples: Number of texts to generate.
    """

    num_samples: int = bounded("[1, 1e6]", 1)


@dataclass
class Predict(Use):
    """Predictions of a trained model.

    Args:
        batch_size: Examples per step.
        top: Number of labels to print per input of a classifier, the most probable first.
        on_bad_rows: Inputs that cannot be read: report prints the reason in place of the prediction, skip leaves them out, and
            error stops at the first one.
    """

    batch_size: int = bounded(f"[1, {LARGEST}]", 64)
    top: int = bounded("[1, 1e6]", 1)
    on_bad_rows: str = "report"


@dataclass
class Evaluate(Measuring, Use):
    """Evaluation of a trained model.

    Args:
        data: Spec of the data set; by default that of training.
    """

    data: str | None = None


def locate(source: str, **options: Any) -> Path:
    """Return the local folder of a model, see `zoo.hub.sources.locate`, after checking without torch that it contains one."""
    from zoo.hub import sources

    path = sources.locate(source, **options)
    find(path)
    return path


def check_local(run: str | Path) -> None:
    """Raise `InputError` if the data set of an untrusted model folder, see `to_fetch`, would be downloaded."""
    if data := to_fetch(run):
        text = f"'{run}' was trained on {data}, which may have to be downloaded"
        raise InputError(f"{text}: confirm it with --data {quote(data)}")


def to_fetch(run: str | Path) -> str | None:
    """Return the data set of a model folder that is not part of a run, if it may have to be downloaded."""
    from zoo.checkpoint import find, read_config

    folder = find(run)
    data = read_config(folder).data
    if data is None or any((parent / "config.yaml").is_file() for parent in folder.absolute().parents[:2]):
        return None
    entry, spec = registry.resolve("zoo.datasets", data)
    parameter = signature(registry.load(entry)).parameters.get("path")
    is_local = parameter is None or parameter.default is not None or spec.options.get("path") is not None
    return None if is_local else str(data)


def test(run: str, *, options: Evaluate) -> Result:
    """Evaluate a trained model on the test split."""
    return evaluate(run, options, "test")


def validate(run: str, *, options: Evaluate) -> Result:
    """Evaluate a trained model on the validation split."""
    return evaluate(run, options, "val")


def evaluate(source: str, options: Evaluate, split: str) -> Result:
    """Evaluate a model on a split."""
    run = locate(source)
    if options.data is None:
        check_local(run)
    from zoo.inference.model import load
    from zoo.training.trainer import check_trainer

    sizes = {"batch_size": options.batch_size, "num_workers": options.num_workers}
    trainer, model = check_trainer(options.trainer), load(run, device=options.device)
    metrics = model.evaluate(options.data, split, trainer=trainer, **sizes, **options.decoding)
    width = max(map(len, metrics), default=0)
    return Result(metrics, "\n".join(f"{split} {name:<{width}}  {number(value)}" for name, value in metrics.items()))


def predict(run: str, input: Sequence[str] = (), *, options: Predict, truncate: bool = False, json: bool = False) -> int:
    """Classify images or texts with a trained model, or translate texts.

    Args:
        input: Image models: image files or folders; text models: a quoted text, a file with one text per line, a folder of
            such files, or - for standard input (the default if input is piped); pairs: two texts, separated by a tab in files.
        truncate: Truncate texts that are longer than the model reads.
        json: Print one JSON object per line.
    """
    inputs = list(input) or ([] if sys.stdin is None or sys.stdin.isatty() else ["-"])
    if not inputs:
        raise InputError(
            "missing INPUT: use image files, a quoted text or a text file (see zoo predict --help)", code="missing"
        )
    path = locate(run)
    from zoo.inference.model import load

    model, errors, count, is_skipped = load(path, device=options.device), list[str](), 0, options.on_bad_rows == "skip"
    flags: dict[str, Any] = {"batch_size": options.batch_size, "truncation": truncate, "top": options.top} | options.decoding
    flags |= {"on_bad_rows": "report" if is_skipped else options.on_bad_rows}  # to count them
    for count, row in enumerate(model.predict_iter(inputs, stdin=sys.stdin, **flags), 1):  # noqa: B007 (counts the rows)
        errors += [row["error"]] if "error" in row else []
        if not (is_skipped and "error" in row):
            print(to_json(row, ensure_ascii=False) if json else visible(line(row)), flush=True)
    if errors:
        done, more = "skipped" if is_skipped else "not read", " ..." if len(errors) > 5 else ""
        listed = printable("; ".join(errors[:5]))
        print(f"zoo: {len(errors):,} of {count:,} inputs {done}: {listed}{more}", file=sys.stderr)
    return 1 if errors and not is_skipped else 0


def line(row: dict[str, Any]) -> str:
    """Format a prediction as tab-separated columns, or for a generative model as the generated text."""
    if error := row.get("error"):
        return "\t".join([*(cell(value) for value in row.values() if value not in (None, error)), f"error: {error}"])
    if "target" in row:
        return " ".join(str(row["target"]).splitlines())
    if top := row.get("top"):
        row = {name: value for name, value in row.items() if name not in ("label", "probability", "top")}
        return "\t".join([*map(cell, row.values()), *(f"{best['label']}\t{cell(best['probability'])}" for best in top)])
    return "\t".join(cell(value) for value in row.values())


def cell(value: object) -> str:
    """Format a value of a prediction row."""
    if isinstance(value, float):
        return f"{value:.4f}"
    return ", ".join(map(cell, value)) if isinstance(value, list) else str(value)


def generate(run: str, *, options: Generate, prompt: str | None = None, json: bool = False) -> None:
    """Generate text with a trained model.

    Args:
        prompt: Prompt or source text; - reads standard input.
        json: Print one JSON object per text.
    """
    count = options.num_samples
    prompt, path = read_prompt(prompt), locate(run)
    from zoo.inference.model import load

    model = load(path, device=options.device)
    task = model.generative(options.decoding)
    prompt = prompt or task.default_prompt()
    shown = prompt if task.continues_prompt else ""
    if count == 1 and not json:
        pieces = model.generate(prompt, stream=True, **options.decoding)
        print(visible(shown), end="", flush=True)
        for piece in pieces:
            print(visible(piece), end="", flush=True)
        print()
        return
    for index, text in enumerate(model.generate(prompt, count, **options.decoding), 1):
        if json:
            print(to_json({"prompt": prompt, "text": text}, ensure_ascii=False))
        else:
            print(visible(f"{'' if index == 1 else chr(10)}--- {index}\n{shown}{text}"), flush=True)


def read_prompt(word: str | None) -> str | None:
    """Return the prompt, read from standard input for ``-``."""
    if word == "-":
        word = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff").removesuffix("\n")
    if word and any("\ud800" <= letter <= "\udfff" for letter in word):
        raise InputError("--prompt: invalid UTF-8; encode the text as UTF-8")
    return word


def pull(source: str, *, revision: str | None = None, token: str | None = None) -> Result:
    """Download a trained model to the cache and verify it.

    Args:
        source: A name of zoo list checkpoints, OWNER/NAME on the Hugging Face Hub, https://HOST/FOLDER, or file:FOLDER.
        revision: A branch, tag or commit on the Hub; by default main.
        token: A token of the Hub; by default that of hf auth login or HF_TOKEN.
    """
    folder = find(locate(source, revision=revision, token=token))
    name = quote(f"{source}@{revision}" if revision else source)
    sizes = [record["size"] for record in verify(folder).values()]
    metrics = read_manifest(folder).get("metrics") or {}
    measured = "".join(f"; test {name} {number(value)}" for name, value in metrics.items())
    text = f"{source}: {len(sizes)} files, {sum(sizes):,} bytes, verified against the manifest{measured}\nin {folder}\n\nnext:"
    text += f"\n  zoo verify {name}  # rebuild its network\n  zoo test {name}  # measure it"
    value = {"source": source, "folder": str(folder), "files": len(sizes), "bytes": sum(sizes), "metrics": metrics}
    return Result(value, text)


def push(
    run: str,
    to: str,
    *,
    private: bool = False,
    license: str | None = None,
    revision: str | None = None,
    token: str | None = None,
) -> Result:
    """Upload a trained model, with its card, to the Hugging Face Hub (or to HF_ENDPOINT).

    Args:
        run: A run (runs/NAME) or model folder.
        to: OWNER/NAME; created if it does not exist.
        private: Make a new repository private.
        license: The Hub's name of a license, such as mit or apache-2.0.
        revision: The branch, created if it does not exist; by default main.
        token: A token of the Hub with write access; by default that of hf auth login or HF_TOKEN.
    """
    from zoo.hub import release

    result = release.push(run, to, license=license, private=private, revision=revision, token=token)
    source = quote(result["source"])
    return Result(result, f"pushed: {result['source']}\n\nnext:\n  zoo pull {source}\n  zoo test {source}")


def publish(
    run: str,
    repeats: Sequence[str] = (),
    *,
    to: str | None = None,
    name: str | None = None,
    license: str | None = None,
    exports: str | None = None,
) -> Result:
    """Write a release folder of a trained model and its catalogue entry.

    Args:
        run: A run (runs/NAME) or model folder.
        repeats: Runs of the same configuration with other seeds; the card reports the spread.
        to: Folder of releases with a catalogue.json, for any web server; or hf:owner/name.
        name: Name in the catalogue; by default the name of the run folder.
        exports: Folder of exports of the run by zoo export; the card reports their bytes and test metrics.
    """
    if not to:
        raise InputError("missing --to: use --to FOLDER or --to hf:OWNER/NAME", code="missing")
    from zoo.hub import release

    result = release.publish(run, to, name, license, repeats, exports)
    if result["catalogue"] is None:
        entry = json.dumps({result["name"]: result["entry"]}, indent=2)
        return Result(result, f"pushed: {result['source']}; the entry for a catalogue.json:\n{entry}")
    folder, quoted = quote(str(Path(result["catalogue"]).parent)), quote(result["name"])
    text = f"{result['source']}: {result['entry']['bytes']:,} bytes, and in {result['catalogue']}\n\nnext:\n"
    text += f"  ZOO_CATALOGUE={folder} zoo test {quoted}\n"
    text += f"  python -m http.server -d {folder}  # then, elsewhere: ZOO_CATALOGUE=http://HOST:8000 zoo pull {quoted}"
    return Result(result, text)


def list_checkpoints() -> Result:
    """List the checkpoints of all catalogues."""
    from zoo.hub.sources import entries

    releases, problems = entries()
    for problem in problems:
        print(f"zoo: {problem}", file=sys.stderr)
    rows = [{"name": release.name, "catalogue": release.origin, **release.facts} for release in releases]
    return Result(rows, print_checkpoints)


def print_checkpoints(rows: list[dict[str, Any]]) -> None:
    """Print a table with one checkpoint per line."""
    from zoo.hub.sources import exported_bytes
    from zoo.reports import plain_console, plain_table

    if not rows:
        print("checkpoints: none in the installed catalogues; ZOO_CATALOGUE=URL names one of a web server")
        return
    head = ("checkpoint", "algebra", "data", "test", "parameters", "relative to real")
    table = plain_table(*head, "bytes", "as onnx", "in int8", "license", "from")
    for column in table.columns[1:3]:
        column.justify = "left"
    for row in rows:
        counts, metrics = row.get("parameters") or {}, row.get("metrics") or {}
        total, twin = counts.get("total"), counts.get("real_twin")
        best = next((f"{name} {number(value)}" for name, value in metrics.items() if name != "loss"), "")
        share = f"{total / twin:.1%}" if total and twin else ""
        origin = "" if row["catalogue"] == "hypercomplex-zoo" else row["catalogue"]
        sizes = (row["bytes"], exported_bytes(row), exported_bytes(row, "int8"))
        bytes_of = ("" if size is None else f"{size:,}" for size in sizes)
        cells = (row.get("algebra"), row.get("data"), best, f"{total:,}" if total else "", share, *bytes_of)
        table.add_row(row["name"], *map(str, cells), str(row.get("license") or ""), origin)
    plain_console().print(table)
    print("next:\n  zoo predict NAME INPUT  # fetched, checked and used; zoo pull NAME only fetches")
