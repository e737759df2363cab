"""Pretrained word vectors: GloVe (Pennington et al. 2014) and word2vec (Mikolov et al. 2013) files."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.options import DataError, resolve_path
from zoo.data.text.files import LONGEST_LINE, data_suffix, non_utf8, open_binary
from zoo.errors import InputError

Entries = Iterator[tuple[str, str, npt.NDArray[np.float32]]]  # location, word, vector

NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
CHUNK = 1 << 20  # bytes of a binary file to read at a time


def read_vectors(path: str | Path, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Look up words in a file of vectors, which may be larger than the memory.

    Args:
        path: GloVe text, word2vec text (with a first line of count and width), or word2vec binary (.bin); plain, .gz or .xz.
        words: The V words, looked up as written, then in lower case; the first entry counts.

    Returns:
        Vectors float32 [V, width], zero for words without one, and which words have one, bool [V].
    """
    file = resolve_path(path, "vectors")
    wanted = {spelling for word in words for spelling in (word, word.lower())}
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    with open_binary(file) as stream:
        for location, word, vector in (_binary if data_suffix(file) == ".bin" else _text)(stream, file, wanted):
            if not np.isfinite(vector).all():
                raise InputError(f"{location}: the vector of {word!r} is not finite; the file is damaged", code="corrupt")
            vectors[word] = vector
            wanted.remove(word)
    if not vectors:
        sample = ", ".join(repr(word) for word in words[-3:])
        raise DataError(f"{file}: has none of the {len(words)} words, such as {sample}; check language and tokenizer")
    rows = [vectors.get(word, vectors.get(word.lower())) for word in words]
    blank = np.zeros_like(next(iter(vectors.values())))
    matrix = np.stack([blank if row is None else row for row in rows])
    return torch.from_numpy(matrix), torch.tensor([row is not None for row in rows])


def _header(line: bytes) -> list[int]:
    """Return count and width if the first line of a file has them, else an empty list."""
    fields = line.split()
    return [*map(int, fields)] if len(fields) == 2 and all(field.isdigit() and len(field) < 19 for field in fields) else []


def _text(stream: Any, path: Path, wanted: set[str]) -> Entries:
    """Yield the entries of wanted words in a text file; other numbers are not parsed."""
    first, name = stream.readline(LONGEST_LINE), str(path)  # faster to format than a path
    header = _header(first)
    if not (width := header[1] if header else first.rstrip().count(b" ")):
        raise DataError(f"{path}:1: no vector; expected a word and its numbers, separated by spaces")
    lines = enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 2)
    for number, line in lines if header else chain([(1, first)], lines):
        if not (line := line.rstrip()):
            continue
        location = f"{name}:{number}"
        raw, _, numbers = line.partition(b" ")
        if (count := line.count(b" ")) != width:
            raw, *parts = line.rsplit(b" ", width)  # some words of GloVe 840B contain spaces
            numbers = b" ".join(parts)
            if count < width or NUMBER.fullmatch(raw.rpartition(b" ")[2]):
                numbers_found = f"{count} numbers after the word, but {width} on the first line"
                raise InputError(f"{location}: {numbers_found}; the line is damaged", code="corrupt")
        if (word := _word(raw, location)) in wanted:
            try:
                yield location, word, np.array([float(text) for text in numbers.split(b" ")], dtype=np.float32)
            except ValueError as error:
                message = f"{location}: {error} in the vector of {word!r}; the line is damaged"
                raise InputError(message, code="corrupt") from error


def _binary(stream: Any, path: Path, wanted: set[str]) -> Entries:
    """Yield the entries of wanted words in a binary file: a word, a space, and little-endian float32 numbers."""
    if not (header := _header(stream.readline(100))):
        raise DataError(f"{path}: no count and width at the start; expected a binary word2vec file")
    count, width = header
    buffer, start = b"", 0
    for number in range(1, count + 1):
        location = f"{path}, vector {number}"
        while (blank := buffer.find(b" ", start)) < 0 or len(buffer) <= blank + 4 * width:
            if not (chunk := stream.read(CHUNK)):
                raise DataError(f"{location}: the file ends here, but its first line says {count}; it is incomplete")
            buffer, start = buffer[start:] + chunk, 0
        word = _word(buffer[start:blank].lstrip(b"\n"), location)
        start = blank + 1 + 4 * width
        if word in wanted:
            yield location, word, np.frombuffer(buffer[blank + 1 : start], dtype="<f4").astype(np.float32)


def _word(raw: bytes, location: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{location}: {non_utf8(raw[error.start])}") from error
