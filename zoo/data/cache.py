"""Cache large tables and tokens in memory-mapped files that are written once."""

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
"""Data of up to this many bytes stay in memory: recomputing them takes no longer than opening a file."""


def folder(name: str) -> Path:
    """Return a folder of the zoo's cache, see `zoo.registry.home.home`; users may delete its files at any time."""
    return home() / name


@contextmanager
def write_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            yield file
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or type(error).__name__
        message = f"{path.parent}: cannot cache large data ({reason}); free space, or set ZOO_HOME to another folder"
        raise InputError(message, code="failed") from error


def take_small(parts: Iterator[Any]) -> tuple[list[Any], bool]:
    """Take parts until they exceed `SMALL` bytes; return them and whether they are all."""
    taken, size = [], 0
    for part in parts:
        taken.append(part)
        size += part.nbytes
        if size > SMALL:
            return taken, False
    return taken, True


class MappedArray:
    """A memory-mapped array; pickling sends the path, so that worker processes map the file instead of copying it."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path, self.dtype = path, dtype
        self._array: npt.NDArray[Any] = np.memmap(path, dtype=dtype, mode="r")

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> npt.NDArray[Any]:
        return np.asarray(self._array[index])

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedArray, (self.path, self.dtype)


def concatenate(parts: Iterable[npt.NDArray[Any]], path: Path, dtype: str) -> npt.NDArray[Any] | MappedArray:
    """Concatenate arrays, in memory if they are small, else in a mapped file."""
    first, is_complete = take_small(rest := iter(parts))
    if is_complete:
        return np.concatenate([np.empty(0, dtype), *first])
    with write_file(path) as file:
        for part in chain(first, rest):
            file.write(part.tobytes())
    return MappedArray(path, dtype)
