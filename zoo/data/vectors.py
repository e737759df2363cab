"""Pretrained word vectors: GloVe (Pennington et al. 2014) and word2vec (Mikolov et al. 2013) files."""

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.files import LONGEST_LINE, data_suffix, open_binary
from zoo.data.options import DataError, resolve_path
from zoo.errors import InputError

Entries = Iterator[tuple[str, str, npt.NDArray[np.float32]]]  # location, word, vector

CHUNK = 1 << 20  # bytes of a binary file to read at a time
MAX_WIDTH = 1 << 18  # of a vector; a longer one is not a word's, and could exhaust the memory


def read_vectors(path: str | Path, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Look up words in a file of vectors, which may be larger than the memory.

    The file is GloVe text, word2vec text (with a first line of count and width), or word2vec binary (.bin); plain, .gz or .xz.
    The V words are looked up as written, then in lower case; the first entry counts. Returns vectors float32 [V, width], zero
    for words without one, and which words have one, bool [V].
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
    return [*map(int, fields)] if len(line) < 100 and len(fields) == 2 and all(map(bytes.isdigit, fields)) else []


def _text(stream: Any, path: Path, wanted: set[str]) -> Entries:
    """Yield the entries of wanted words in a text file; other numbers are not parsed."""
    header = _header(first := stream.readline(LONGEST_LINE).removeprefix(BOM_UTF8))
    width = header[1] if header else first.rstrip().count(b" ")
    if not 0 < width <= MAX_WIDTH:
        raise DataError(f"{path}:1: no vector; expected a word and its numbers, separated by spaces")
    lines = enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 2)
    for number, line in lines if header else chain([(1, first)], lines):
        raw, _, numbers = line.rstrip().partition(b" ")
        if numbers.count(b" ") != width - 1:  # some words of GloVe 840B contain spaces
            raw, *parts = line.rstrip().rsplit(b" ", width)
            numbers = b" ".join(parts)
        if (word := raw.decode("utf-8", "replace")) in wanted:
            try:
                vector = np.array([float(text) for text in numbers.split(b" ")], dtype=np.float32)
            except ValueError:
                vector = np.empty(0, np.float32)
            if len(vector) != width:
                message = f"{path}:{number}: expected {width} numbers after {word!r}; the line is damaged"
                raise InputError(message, code="corrupt")
            yield f"{path}:{number}", word, vector


def _binary(stream: Any, path: Path, wanted: set[str]) -> Entries:
    """Yield the entries of wanted words in a binary file: a word, a space, and little-endian float32 numbers."""
    if not (header := _header(stream.readline(100))):
        raise DataError(f"{path}: no count and width at the start; expected a binary word2vec file")
    count, width = header
    buffer, start = b"", 0
    for number in range(1, count + 1):
        location = f"{path}, vector {number}"
        while (blank := buffer.find(b" ", start)) < 0 or len(buffer) <= blank + 4 * width:
            if not (chunk := stream.read(CHUNK)) or len(buffer) - start > 4 * MAX_WIDTH:
                raise DataError(f"{location}: no whole vector, but the first line says {count}; the file is incomplete")
            buffer, start = buffer[start:] + chunk, 0
        word = buffer[start:blank].lstrip(b"\n").decode("utf-8", "replace")
        start = blank + 1 + 4 * width
        if word in wanted:
            yield location, word, np.frombuffer(buffer[blank + 1 : start], dtype="<f4").astype(np.float32)
