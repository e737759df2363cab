"""Use a trained model on what the user has: image files, or lines of text."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import torch
from PIL import Image
from torch import Tensor, nn

from zoo.checkpoint import find, load, read_config
from zoo.data import ImageInfo
from zoo.data.info import TextInfo
from zoo.data.preprocess import preprocess
from zoo.data.text.tokenizer import Tokenizer, TokenizerInfo
from zoo.errors import InputError
from zoo.inference.lines import Line, read_lines
from zoo.options import Decoding
from zoo.tasks.making import info_of

GENERATED = ("tokens", "token_stream", "source_target")
"""The inputs of networks that answer at every token."""

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
    info = info_of(config["task"], config["info"])
    if info.inputs not in GENERATED and decoding not in (None, Decoding()):
        raise InputError(f"'{run}' writes nothing: leave out the options of models that write")
    if isinstance(info, TextInfo):
        lines = read_lines(inputs, info, stdin)
        ranks = config["task"] == "answer_ranking"
        yield from classify_lines(load(run, config), tokenizer_of(run, info, cut), info, lines, ranks)
    elif info.inputs == "source_target":
        yield from answer_lines(run, read_lines(inputs, info, stdin), decoding or Decoding(), cut)
    elif isinstance(info, ImageInfo):
        if "-" in map(str, inputs):
            raise InputError(f"'{run}' is a model of images: give image files (zoo predict RUN IMAGE...)")
        net = load(run, config)
        for image in inputs:
            row = answer(probabilities(net, load_image(Path(image), info)[None])[0], info.classes)
            yield {"file": str(image), **row}
    elif info.inputs in GENERATED:
        raise InputError(f"'{run}' is a language model: let it write with zoo generate RUN --prompt TEXT")
    else:
        raise InputError(f"'{run}' answers with numbers for vectors: use zoo.load(...) in Python for its predictions")


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


def classify_lines(
    net: nn.Module, tokenizer: Tokenizer, info: TextInfo, lines: Iterator[Line], ranks: bool
) -> Iterator[dict[str, Any]]:
    """Classify line by line, many at a time; or say how relevant each answer is, for a model that ranks."""
    while some := list(islice(lines, BATCH)):
        places = [place for place, _ in some]
        columns = list(zip(*(texts for _, texts in some), strict=True))
        inputs = [tokenizer.encode(column, places.__getitem__).padded() for column in columns]
        for (_, texts), row in zip(some, probabilities(net, *inputs), strict=True):
            if ranks:
                yield {"question": texts[0], "answer": texts[1], "relevance": round(float(row[1]), 6)}
            else:
                names = ("text",) if len(texts) == 1 else ("first", "second")
                yield {**dict(zip(names, texts, strict=True)), **answer(row, info.classes)}


def answer_lines(run: str | Path, lines: Iterator[Line], decoding: Decoding, cut: bool) -> Iterator[dict[str, Any]]:
    """Answer line by line, many at a time; an empty line has an empty answer."""
    from zoo.inference.generate import Author

    author = Author(run, cut)
    while some := list(islice(lines, BATCH)):
        places, texts = zip(*((place, texts[0]) for place, texts in some), strict=True)
        full = [row for row, text in enumerate(texts) if text.strip()]
        where = [places[row] for row in full]
        written = author.write([texts[row] for row in full], decoding, where.__getitem__) if full else []
        answers = dict(zip(full, written, strict=True))
        yield from ({"source": text, "target": answers.get(row, "")} for row, text in enumerate(texts))


def answer(row: Tensor, classes: Sequence[str]) -> dict[str, Any]:
    """The most probable label and its probability."""
    best = int(row.argmax())
    return {"label": classes[best], "probability": round(float(row[best]), 6)}


def load_image(path: Path, info: ImageInfo) -> Tensor:
    """Read an image file as the network expects it, [C, S, S].

    Raises:
        InputError: If the file is missing or no image.
    """
    try:
        with Image.open(path) as image:
            return preprocess(image, info)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"cannot read the image {path}: {reason}") from error


@torch.inference_mode()
def probabilities(net: nn.Module, *inputs: Tensor) -> Tensor:
    """Class probabilities [B, num_classes] of prepared inputs [B, ...]."""
    found: Tensor = net(*inputs).softmax(-1)
    return found
