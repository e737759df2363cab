"""Files of text: opened, unpacked and decoded piece by piece, so that a file of any size takes constant memory."""

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

OPEN: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
"""Functions that open a packed file, by the ending of its name."""

BLOCK = 2**20  # bytes read at a time
LONGEST_LINE = 2**24  # bytes of a line at most; a longer one is no text, but may fill the memory
MOST_TIMES, ALWAYS = 100, 100 * 2**20
"""A packed file may be so many times its size when it is unpacked, and so many bytes in any case. Texts and images are 3 to 20
times their size; what is made to fill a disk is 1,000 times."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def base_suffix(path: Path) -> str:
    """Return the ending of a file's name, in small letters and without that of the packing."""
    name = path.with_suffix("") if path.suffix.lower() in OPEN else path
    return name.suffix.lower()


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a packed file of which this is the size when it is unpacked, if it is too many times its own."""
    if size > max(ALWAYS, MOST_TIMES * path.stat().st_size):
        raise InputError(
            f"{path}: more than {MOST_TIMES} times its size when it is unpacked; if that is right, unpack it first"
        )


class Unpacked(io.RawIOBase):
    """A packed file, unpacked while it is read, up to a size, see `check_unpacked`."""

    def __init__(self, path: Path) -> None:
        self.path, self.stream = path, OPEN[path.suffix.lower()](path, "rb")

    def readable(self) -> bool:  # noqa: D102 (of the base class, as the others)
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: D102
        count = self.stream.readinto(buffer)
        check_unpacked(self.path, self.stream.tell())
        return int(count)

    def seek(self, place: int, whence: int = 0) -> int:  # noqa: D102
        return int(self.stream.seek(place, whence))

    def tell(self) -> int:  # noqa: D102
        return int(self.stream.tell())

    def close(self) -> None:  # noqa: D102
        self.stream.close()
        super().close()


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a file, unpacked if its name ends in .gz or .xz; whatever goes wrong while it is read is one line."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
            raise DataError(f"{path}: this is {kind}, not a file; save the data to a file first")
        with io.BufferedReader(Unpacked(path), BLOCK) if path.suffix.lower() in OPEN else path.open("rb") as stream:
            yield stream
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason}); is the file whole, and of the kind its name says?") from error


def blocks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file of UTF-8 text in pieces that end where lines end, each with the number of its first line, from 1 on."""
    line = 1
    with opened(path) as stream:
        rest = stream.read(64)
        if rest.startswith(UTF16) or (len(rest) > 3 and 0 in (sum(rest[::2]), sum(rest[1::2]))):
            raise DataError(f"{path}: the file is UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8, say)")
        rest = rest.removeprefix(b"\xef\xbb\xbf")
        while part := stream.read(BLOCK):
            if end := part.rfind(b"\n") + 1:
                piece, rest = rest + part[:end], part[end:]
                yield line, _decoded(path, line, piece)
                line += piece.count(b"\n")
            elif len(rest := rest + part) > LONGEST_LINE:
                raise DataError(f"{path}:{line}: a line of more than {LONGEST_LINE >> 20} MiB; is this a file of text?")
        if rest:
            yield line, _decoded(path, line, rest)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every line of a file with its number, from 1 on, without its end; see `blocks`."""
    for first, piece in _rows(path):
        for number, line in enumerate(piece.removesuffix("\n").split("\n"), first):
            yield number, line.removesuffix("\r")


def read_text(path: Path) -> str:
    """Read a whole file of UTF-8 text; see `blocks`."""
    return "".join(piece for _, piece in blocks(path))


def csv_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file as the `csv` module reads them: with their ends, of any kind."""
    for _, piece in _rows(path):
        yield from io.StringIO(piece, newline="")


def _rows(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the pieces of a table; refuse one of empty lines, of which a small packed file may hold any number."""
    for first, piece in blocks(path):
        if len(piece) > BLOCK // 2 and piece.isspace():
            raise DataError(f"{path}:{first}: {len(piece):,} characters of empty lines; is this a table?")
        yield first, piece


def not_utf8(byte: int) -> str:
    """Say that a byte is no UTF-8, and what to do."""
    return f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8 (iconv -f CP1252 -t UTF-8, say)"


def _decoded(path: Path, line: int, piece: bytes) -> str:
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = line + piece.count(b"\n", 0, error.start)
        raise DataError(f"{path}:{wrong}: {not_utf8(piece[error.start])}") from error
