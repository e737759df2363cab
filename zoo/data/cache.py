"""Files of the data cache: large tables and their tokens are written once and mapped into memory."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
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
