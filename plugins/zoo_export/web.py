"""Write the files beside an ONNX model that make its folder a web page, which runs the model in the browser."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from zoo_serving.page import describe, render, shown

from zoo.atomic import write_bytes, write_text
from zoo.data.info import ImageInfo, TextInfo
from zoo.errors import InputError
from zoo.inference.model import Model
from zoo.tasks import GenerativeTask
from zoo.tasks.decoding import DEFAULT_LENGTH
from zoo.tasks.language import LanguageModel
from zoo.tasks.seq2seq import Seq2Seq
from zoo.tasks.supervised import AnswerRanking, Classification
from zoo_export.runtime import PACKAGE, Runtime

POLICY = "default-src 'none'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; connect-src 'self'; img-src blob: data:; "
POLICY += "style-src 'unsafe-inline'"


def check_task(model: Model) -> None:
    """Raise `InputError` unless a page can compute the inputs of a model and show its outputs."""
    task, info = model.task, model.info
    is_classifier = isinstance(task, Classification | AnswerRanking) and isinstance(info, ImageInfo | TextInfo)
    if not is_classifier and not isinstance(task, LanguageModel | Seq2Seq):
        given = "a network without a task" if task is None else f"a model of {model.config.task}"
        allowed = "classifiers of images or texts and models that generate text"
        raise InputError(f"--format web supports {allowed}, got {given}: use --format onnx", code="unsupported")
    if model.tokenizer is not None and model.tokenizer.backend.get_added_tokens_decoder():
        raise InputError("--format web does not support tokenizers with added tokens: use --format onnx", code="unsupported")


def write_page(model: Model, folder: Path, title: str, runtime: Runtime, config: dict[str, Any]) -> None:
    """Write the page of a model whose ONNX file is in the folder and has this config.json, its script and the runtime."""
    about = {"name": PACKAGE, "version": runtime.version, "bytes": runtime.size}
    web = {"bytes": config["bytes"], "quantize": config["quantize"], "runtime": about} | limits(model)
    facts = describe(model, title) | {"metrics": shown(config["metrics"] or {}), "web": web}
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    write_text(folder / "index.html", render(facts).replace("<head>", f"<head>\n{policy}", 1))
    write_bytes(folder / "inference.js", files("zoo_export").joinpath("inference.js").read_bytes())
    for name, content in runtime.files.items():
        write_bytes(folder / name, content)


def limits(model: Model) -> dict[str, Any]:
    """Return the maximum number of tokens of a text, and for a model that generates text its defaults."""
    task = model.configured({})
    limits: dict[str, Any] = {"max_tokens": task.tokenizer and task.tokenizer.max_length}
    if isinstance(task, GenerativeTask):
        length = task.limited_decoding().length or DEFAULT_LENGTH
        # Without the memory of a segment, only texts up to its length are those of the model.
        limits |= {"positions": getattr(task.net, "segment", task.net.max_length), "length": length}
        limits["prompt"] = task.default_prompt() if task.continues_prompt else ""
    return limits
