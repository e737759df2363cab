"""Files of the user's cache: large data are kept there, made once, and mapped into memory."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from zoo.errors import InputError

SMALL = 2**23  # bytes up to which data stay in memory: to make them anew takes no longer than to find a file


def folder(name: str) -> Path:
    """Return a folder of the user's cache, below $XDG_CACHE_HOME or ~/.cache; its files may be deleted at any time."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "hypercomplex-zoo" / name


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when it is whole, and else leaves nothing behind."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        with open(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or type(error).__name__
        raise InputError(
            f"{path.parent}: cannot keep large data there ({reason}); make room, or let XDG_CACHE_HOME name another folder"
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


class MappedArray:
    """The numbers of a file, read where they lie; a worker process maps the file again instead of getting a copy."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self._numbers: npt.NDArray[Any] = np.memmap(path, dtype=kind, mode="r")

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, places: Any) -> npt.NDArray[Any]:
        return np.asarray(self._numbers[places])

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedArray, (self.path, self.kind)
