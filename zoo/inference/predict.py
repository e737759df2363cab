"""Use a trained model on what the user has: image files, or lines of text."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import torch

from zoo.checkpoint import find, load, read_config
from zoo.data.text.tokenizer import Tokenizer, TokenizerInfo
from zoo.errors import InputError
from zoo.tasks import GenerativeTask, info_of, make_task, task_type
from zoo.tasks.decoding.options import Decoding

BATCH = 64
"""Lines that are classified at a time."""


def predict(
    run: str | Path,
    inputs: Sequence[str | Path],
    stdin: TextIO | None = None,
    cut: bool = False,
    decoding: Decoding | None = None,
) -> Iterator[dict[str, Any]]:
    """Classify, or answer texts, with the model of a run.

    Args:
        run: A run or model folder.
        inputs: For a model of images, image files. For one of text, texts (of pairs two after the other), or files with one
            text a line (of pairs two, with a tab between); ``-`` is standard input.
        stdin: Standard input.
        cut: Whether a text longer than the model reads is cut instead of refused.
        decoding: How a model that writes chooses its words.

    Yields:
        For each image its ``file``, for each line its ``text`` (or ``first`` and ``second``); the ``label`` and its
        ``probability``. Of a model that ranks answers ``question``, ``answer`` and ``relevance``, the probability that it is
        right. Of a model that writes ``source`` and ``target``, line by line.

    Raises:
        InputError: If the folder is damaged, an input cannot be read, or the model reads neither images nor text.
    """
    config = read_config(run)
    info: Any = info_of(config["task"], config["info"])
    kind, _ = task_type(config["task"])
    if decoding not in (None, Decoding()) and not issubclass(kind, GenerativeTask):
        raise InputError(f"'{run}' writes nothing: leave out the options of models that write")
    examples = kind.read_inputs(info, inputs, stdin)
    tokenizer = tokenizer_of(run, info, cut) if hasattr(info, "tokenizer") else None
    task = make_task(config["task"], load(run, config), info, tokenizer)
    if isinstance(task, GenerativeTask) and decoding is not None:
        task.decoding = decoding
    task.eval()
    while some := list(islice(examples, BATCH)):
        with torch.inference_mode():
            outputs = task.predict_step(task.collate(some), 0)
        yield from task.prediction_rows(some, outputs)


def tokenizer_of(run: str | Path, info: TokenizerInfo, truncation: bool = False) -> Tokenizer:
    """Rebuild what turns text into tokens for a trained model.

    Raises:
        InputError: If the file is missing or no tokenizer.
    """
    if not info.tokenizer or info.tokenizer != Path(str(info.tokenizer)).name:
        raise InputError(f"config.json has tokenizer = {info.tokenizer!r}: expected the name of a file beside it")
    path = find(run) / info.tokenizer
    try:
        return Tokenizer.from_json(path.read_text(encoding="utf-8"), info, truncation)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
