"""The content of a file: unpacked and decoded."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

from zoo.errors import InputError

UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}


def read_bytes(path: Path) -> bytes:
    """Read a file, unpacked if its name ends in .gz or .xz.

    Raises:
        InputError: It cannot be read or unpacked.
    """
    try:
        content = path.read_bytes()
        return UNPACK[path.suffix.lower()](content) if path.suffix.lower() in UNPACK else content
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be read ({reason}); is the file whole, and of the kind its name says?") from error


def read_text(path: Path) -> str:
    """Read a file of UTF-8 text, without the mark that some editors put at its start.

    Raises:
        InputError: It is not UTF-8; the message names the first such line.
    """
    content = read_bytes(path)
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: {not_utf8(content[error.start])}") from error


def not_utf8(byte: int) -> str:
    """Say that a byte is no UTF-8, and what to do."""
    return f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8 (iconv -f CP1252 -t UTF-8, say)"


def base_suffix(path: Path) -> str:
    """Return the ending of a file's name, in small letters and without that of the packing."""
    name = path.with_suffix("") if path.suffix.lower() in UNPACK else path
    return name.suffix.lower()
