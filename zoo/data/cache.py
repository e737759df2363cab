"""Large tables and tokens: written once to the user's cache, and mapped into memory."""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from zoo.atomic import new_file
from zoo.errors import InputError
from zoo.registry.home import home

SMALL = 2**23
"""Bytes up to which data stay in memory: making them anew takes no longer than finding a file."""


def folder(name: str) -> Path:
    """Return a folder of the zoo's cache, see `zoo.registry.home.home`; its files may be deleted at any time."""
    return home() / name


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when it is complete, and leaves nothing behind otherwise."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            yield file
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or type(error).__name__
        message = f"{path.parent}: cannot cache large data there ({reason}); free space, or set ZOO_HOME to another folder"
        raise InputError(message, code="failed") from error


def first_parts(parts: Iterator[Any]) -> tuple[list[Any], bool]:
    """Take parts, all of them or a little more than `SMALL` bytes; return them and whether these are all."""
    taken, size = [], 0
    for part in parts:
        taken.append(part)
        size += part.nbytes
        if size > SMALL:
            return taken, False
    return taken, True


class MappedArray:
    """A memory-mapped array of a file; a worker process maps the file again instead of getting a copy."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self._numbers: npt.NDArray[Any] = np.memmap(path, dtype=kind, mode="r")

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> npt.NDArray[Any]:
        return np.asarray(self._numbers[index])

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedArray, (self.path, self.kind)


def concatenated(parts: Iterable[npt.NDArray[Any]], path: Path, kind: str) -> npt.NDArray[Any] | MappedArray:
    """Concatenate arrays of a type of numbers, a few in memory, many in a mapped file."""
    first, complete = first_parts(rest := iter(parts))
    if complete:
        return np.concatenate([np.empty(0, kind), *first])
    with written(path) as file:
        for part in chain(first, rest):
            file.write(part.tobytes())
    return MappedArray(path, kind)
