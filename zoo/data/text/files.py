"""Read text files in blocks, decompressed and decoded on the fly, so that memory does not depend on the file size."""

import gzip
import io
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def data_suffix(path: Path) -> str:
    """Return the lower-case extension of a file name without that of the compression: `.tsv` for `X.TSV.gz`."""
    return (path.with_suffix("") if path.suffix.lower() in OPENERS else path).suffix.lower()


def check_unpacked(path: Path, size: int) -> None:
    """Raise `InputError` if a compressed file expands to `size` bytes and that exceeds the limit."""
    if size > max(MIN_LIMIT, MAX_RATIO * path.stat().st_size):
        raise InputError(f"{path}: expands to more than {MAX_RATIO} times its size; if this is intended, decompress it first")


class Decompressed(io.RawIOBase):
    """A compressed file that is decompressed as it is read, up to the limit of `check_unpacked`."""

    def __init__(self, path: Path) -> None:
        self.path, self.stream = path, OPENERS[path.suffix.lower()](path, "rb")

    def readable(self) -> bool:  # noqa: D102 (inherited, as below)
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: D102
        count = self.stream.readinto(buffer)
        check_unpacked(self.path, self.stream.tell())
        return int(count)

    def seek(self, offset: int, whence: int = 0) -> int:  # noqa: D102
        return int(self.stream.seek(offset, whence))

    def tell(self) -> int:  # noqa: D102
        return int(self.stream.tell())

    def close(self) -> None:  # noqa: D102
        self.stream.close()
        super().close()


@contextmanager
def open_binary(path: Path) -> Iterator[Any]:
    """Open a file for reading, decompressed if its name ends in .gz or .xz; any error is raised as a one-line `DataError`."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
            raise DataError(f"{path} is {kind}, not a file; save the data to a file first")
        with io.BufferedReader(Decompressed(path), BLOCK) if path.suffix.lower() in OPENERS else path.open("rb") as stream:
            yield stream
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        raise DataError(
            f"{path}: cannot be read ({reason}); check that the file is complete and its extension right"
        ) from error


def read_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield blocks of whole lines of a UTF-8 file, each with the number of its first line, from 1."""
    line = 1
    with open_binary(path) as stream:
        rest = stream.read(64)
        if rest.startswith(UTF16) or (len(rest) > 3 and 0 in (sum(rest[::2]), sum(rest[1::2]))):
            raise DataError(f"{path}: the file is UTF-16; save it as UTF-8, for example with iconv -f UTF-16 -t UTF-8")
        rest = rest.removeprefix(b"\xef\xbb\xbf")
        while part := stream.read(BLOCK):
            if end := part.rfind(b"\n") + 1:
                block, rest = rest + part[:end], part[end:]
                yield line, _decode(path, line, block)
                line += block.count(b"\n")
            elif len(rest := rest + part) > LONGEST_LINE:
                raise DataError(f"{path}:{line}: longer than {LONGEST_LINE >> 20} MiB; expected lines of text")
        if rest:
            yield line, _decode(path, line, rest)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every line of a table without its line break, with its number from 1; only a line feed ends a line."""
    for first, block in _table_blocks(path):
        for number, line in enumerate(block.removesuffix("\n").split("\n"), first):
            yield number, line.removesuffix("\r")


def read_csv_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a table with their line breaks of any kind, as the `csv` module expects them."""
    for _, block in _table_blocks(path):
        yield from io.StringIO(block, newline="")


def read_text(path: Path) -> str:
    """Read a whole UTF-8 file."""
    return "".join(block for _, block in read_blocks(path))


def _table_blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a table; raise if one is blank, since a small compressed file may contain any number of them."""
    for first, block in read_blocks(path):
        if len(block) > BLOCK // 2 and block.isspace():
            raise DataError(f"{path}:{first}: {len(block):,} characters of empty lines; expected the rows of a table")
        yield first, block


def non_utf8(byte: int) -> str:
    """Return the message for a byte that is not UTF-8."""
    return f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8, for example with iconv -f CP1252 -t UTF-8"


def _decode(path: Path, line: int, block: bytes) -> str:
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        number = line + block.count(b"\n", 0, error.start)
        raise DataError(f"{path}:{number}: {non_utf8(block[error.start])}") from error
