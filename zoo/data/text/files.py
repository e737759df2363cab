"""Read text files line by line, decompressed and decoded on the fly."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from zoo.data.options import DataError
from zoo.errors import InputError

OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""Functions that open compressed files, by file extension."""

BLOCK = 2**20  # bytes per read
LONGEST_LINE = 2**24  # bytes; a longer line is not text, and could exhaust the memory
MAX_RATIO, MIN_LIMIT = 100, 100 * 2**20
"""A compressed file may expand to `MAX_RATIO` times its size, or to `MIN_LIMIT` bytes if that is more. Texts and images expand
3 to 20 times, decompression bombs 1,000 times."""


def data_suffix(path: Path) -> str:
    """Return the lower-case extension of a file name without that of the compression: `.tsv` for `X.TSV.gz`."""
    return (path.with_suffix("") if path.suffix.lower() in OPENERS else path).suffix.lower()


def check_unpacked(path: Path, size: int) -> None:
    """Raise `InputError` if a compressed file expands to `size` bytes and that exceeds the limit."""
    if size > max(MIN_LIMIT, MAX_RATIO * path.stat().st_size):
        raise InputError(f"{path}: expands to more than {MAX_RATIO} times its size; if this is intended, decompress it first")


@contextmanager
def open_binary(path: Path) -> Iterator[Any]:
    """Open a file for reading, decompressed if its name ends in .gz or .xz; any error is raised as a one-line `DataError`."""
    try:
        with OPENERS.get(path.suffix.lower(), open)(path, "rb") as stream:
            yield stream
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{path}: cannot be read ({reason}); check that the file is complete and its extension right"
        ) from error


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their line breaks; only a line feed ends a line."""
    size = 0
    with open_binary(path) as stream:
        for number, line in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), 1):
            size += len(line)
            if size > MIN_LIMIT:
                check_unpacked(path, size)
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}:{number}: longer than {LONGEST_LINE >> 20} MiB; expected lines of text")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{number}: {non_utf8(line[error.start])}") from error
            yield text


def read_text(path: Path) -> str:
    """Read a whole UTF-8 file, without a byte order mark."""
    content = bytearray()
    with open_binary(path) as stream:
        while block := stream.read(BLOCK):
            content += block
            check_unpacked(path, len(content))
    try:
        return str(content, "utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise DataError(f"{path}:{line}: {non_utf8(content[error.start])}") from error


def non_utf8(byte: int) -> str:
    """Return the message for a byte that is not UTF-8."""
    return f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8, for example with iconv -f CP1252 -t UTF-8"
