"""Pretrained word vectors: GloVe (Pennington et al. 2014) and word2vec (Mikolov et al. 2013) files."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.sources import existing
from zoo.data.text.files import LONGEST_LINE, base_suffix, not_utf8, opened
from zoo.errors import InputError

Vector = npt.NDArray[np.float32]
Found = Iterator[tuple[str, Vector]]

NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
CHUNK = 1 << 20  # bytes of a binary file to read at a time
WIDEST = 2**16  # numbers of a vector at most


def read_vectors(path: str | Path, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Look words up in a file of vectors, which may be larger than the memory.

    Args:
        path: GloVe text, word2vec text (a first line of count and width), or word2vec binary (.bin); plain, .gz or .xz.
        words: The V words. Each is looked up as it is, and if it is not there in small letters; the first entry counts.

    Returns:
        Vectors float32 [V, width], zero where the file has none, and which words it has, bool [V].
    """
    file = existing(path, "vectors")
    wanted = {spelling for word in words for spelling in (word, word.lower())}
    vectors: dict[str, Vector] = {}
    with opened(file) as stream:
        width, entries = (_binary if base_suffix(file) == ".bin" else _text)(stream, file, wanted)
        for word, vector in entries:
            vectors[word] = vector
            wanted.remove(word)
    if not vectors:
        sample = ", ".join(repr(word) for word in words[-3:])
        raise InputError(
            f"{file}: has none of the {len(words)} words (such as {sample}); another language or tokenizer?", code="data"
        )
    rows = [vectors.get(word, vectors.get(word.lower())) for word in words]
    matrix = np.stack([np.zeros(width, np.float32) if row is None else row for row in rows])
    return torch.from_numpy(matrix), torch.tensor([row is not None for row in rows])


def _text(stream: IO[bytes], path: Path, wanted: set[str]) -> tuple[int, Found]:
    """Read the width off the first line; return it with the wanted entries."""
    first = stream.readline(LONGEST_LINE)
    fields = first.rstrip().split(b" ", 2)
    lines: Iterable[tuple[int, bytes]] = enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 2)
    if len(fields) == 2 and all(field.isdigit() and len(field) < 19 for field in fields):
        return _width(int(fields[1]), path), _lines(lines, int(fields[1]), path, wanted)
    width = _width(first.rstrip().count(b" "), path)
    return width, _lines(chain([(1, first)], lines), width, path, wanted)


def _width(width: int, path: Path) -> int:
    if width < 1:
        raise InputError(f"{path}:1: no vector; a line is a word and its numbers, with blanks between", code="data")
    if width > WIDEST:
        raise InputError(f"{path}:1: vectors of {width:,} numbers; at most {WIDEST:,} are read", code="data")
    return width


def _lines(lines: Iterable[tuple[int, bytes]], width: int, path: Path, wanted: set[str]) -> Found:
    """Yield the wanted entries of a text file; only their numbers are parsed."""
    for number, line in lines:
        line = line.rstrip()
        if not line:
            continue
        location = f"{path}:{number}"
        raw, _, numbers = line.partition(b" ") if line.count(b" ") == width else _long(line, width, location)
        if (word := _word(raw, location)) not in wanted:
            continue
        try:
            vector = np.array([float(text) for text in numbers.split(b" ")], dtype=np.float32)
        except ValueError as error:
            raise InputError(f"{location}: {error} in the vector of {word!r}; the line is damaged", code="corrupt") from error
        yield word, _finite(vector, word, location)


def _long(line: bytes, width: int, location: str) -> tuple[bytes, bytes, bytes]:
    """Cut an entry whose word holds blanks, as some of GloVe 840B do, from the right."""
    raw, *numbers = line.rsplit(b" ", width)
    if len(numbers) < width or NUMBER.fullmatch(raw.rpartition(b" ")[2]):
        count = line.count(b" ")
        raise InputError(
            f"{location}: {count} numbers behind the word, but {width} on the first line; the line is damaged", code="corrupt"
        )
    return raw, b" ", b" ".join(numbers)


def _binary(stream: IO[bytes], path: Path, wanted: set[str]) -> tuple[int, Found]:
    """Read count and width off the first line; return the width with the wanted entries."""
    fields = stream.readline(100).split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 19 for field in fields):
        raise InputError(f"{path}: no count and width at the start; is this a binary file of word2vec?", code="data")
    width = _width(int(fields[1]), path)
    return width, _records(stream, int(fields[0]), width, path, wanted)


def _records(stream: IO[bytes], count: int, width: int, path: Path, wanted: set[str]) -> Found:
    """Yield the wanted entries of a binary file: a word, a blank, and float32 numbers, lowest byte first."""
    buffer, start = b"", 0
    for number in range(1, count + 1):
        location = f"{path}, vector {number}"
        while (blank := buffer.find(b" ", start)) < 0 or len(buffer) <= blank + 4 * width:
            chunk = stream.read(CHUNK)
            if not chunk:
                raise InputError(
                    f"{location}: the file ends here, but its first line promises {count}; is it whole?", code="data"
                )
            buffer, start = buffer[start:] + chunk, 0
        word = _word(buffer[start:blank].lstrip(b"\n"), location)
        start = blank + 1 + 4 * width
        if word in wanted:
            yield word, _finite(np.frombuffer(buffer[blank + 1 : start], dtype="<f4").astype(np.float32), word, location)


def _word(raw: bytes, location: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{location}: {not_utf8(raw[error.start])}", code="data") from error


def _finite(vector: Vector, word: str, location: str) -> Vector:
    if not np.isfinite(vector).all():
        raise InputError(
            f"{location}: the vector of {word!r} holds a number that is not finite; the file is damaged", code="corrupt"
        )
    return vector
