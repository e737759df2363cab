"""Running text from memory or from files of any size: read from beginning to end in pieces, and cut into splits."""

import codecs
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

from zoo.data.options import DataError
from zoo.data.text.files import OPEN, not_utf8, opened

PIECE = 2**20  # characters or bytes that are read at a time: enough for speed, few enough for any memory
PERCENT = (90, 95, 100)  # where training, validation and test text end, of a text without splits


@dataclass(frozen=True)
class Text:
    """Running text in memory.

    Attributes:
        content: The text.
        name: What messages call it.

    Example:
        >>> [part.content for part in Text("to be or not").cut((50, 100))]
        ['to be ', 'or not']
    """

    content: str
    name: str = "the text"

    @property
    def size(self) -> int:
        """Number of characters."""
        return len(self.content)

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces."""
        return _at_line_ends(self.content[start : start + PIECE] for start in range(0, self.size, PIECE))

    def cut(self, percent: Sequence[int]) -> list[Self]:
        """Cut the text into parts that end after these shares of its characters."""
        ends = [self.size * share // 100 for share in percent]
        return [type(self)(self.content[start:end], self.name) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _at_line_ends(parts: Iterable[str]) -> Iterator[str]:
    """Put parts of a text together anew, so that they end with a line, or before a space if a line is longer than a part."""
    rest = ""  # words stay whole then, and so do letters that consist of several characters
    for part in parts:
        rest += part
        end = rest.rfind("\n") + 1 or rest.rfind(" ")
        end = end if end > 0 else len(rest)
        if end:
            yield rest[:end]
        rest = rest[end:]
    if rest:
        yield rest


@dataclass(frozen=True)
class TextFile:
    """A file of UTF-8 text, or a part of it; the mark that some editors put at the start is left out.

    Attributes:
        path: The file; one whose name ends in .gz or .xz is unpacked while it is read.
        start: The first byte of this part.
        stop: The byte after its last one.
    """

    path: Path
    start: int
    stop: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the whole file."""
        plain = path.is_file() and path.suffix.lower() not in OPEN
        return cls(path, 0, path.stat().st_size if plain else sum(map(len, _bytes(path, 0, None))))

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.stop - self.start

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces."""
        return _at_line_ends(self._decoded())

    def cut(self, percent: Sequence[int]) -> list[Self]:
        """Cut the text into parts that end after these shares of its bytes, or a little later, at the end of a character."""
        ends = [self.stop if share == 100 else self._boundary(self.start + self.size * share // 100) for share in percent]
        return [type(self)(self.path, start, end) for start, end in zip([self.start, *ends[:-1]], ends, strict=True)]

    def _boundary(self, place: int) -> int:
        """Return the first place from this one on where a character begins."""
        following = b"".join(_bytes(self.path, place, min(place + 4, self.stop)))
        return place + next((i for i, byte in enumerate(following) if byte & 0xC0 != 0x80), len(following))

    def _decoded(self) -> Iterator[str]:
        """Yield the text as it is read; an error names the line."""
        decoder, done, first = codecs.getincrementaldecoder("utf-8")(), self.start, self.start == 0
        for part in chain(_bytes(self.path, self.start, self.stop), [b""]):
            done += len(part)
            try:
                text = decoder.decode(part, final=not part)
            except UnicodeDecodeError as error:
                wrong = done - len(error.object) + error.start
                line = 1 + sum(before.count(b"\n") for before in _bytes(self.path, 0, wrong))
                raise DataError(f"{self.path}:{line}: {not_utf8(error.object[error.start])}") from error
            yield text.removeprefix("\ufeff") if first else text
            first = False


def _bytes(path: Path, start: int, stop: int | None) -> Iterator[bytes]:
    with opened(path) as stream:
        stream.seek(start)
        left = PIECE if stop is None else stop - start
        while left > 0 and (part := stream.read(min(PIECE, left))):
            left -= 0 if stop is None else len(part)
            yield part


Source = Text | TextFile


def divided(splits: Mapping[str, Source], use_all: bool) -> tuple[dict[str, Source], str]:
    """Add the splits that are missing, as `CorpusData` says; return them and a remark on what was cut from what."""
    found = dict(splits)
    if set(found) == {"train"} and use_all:
        return dict.fromkeys(("train", "val", "test"), found["train"]), "all of one text"
    if set(found) == {"train"}:
        parts = found["train"].cut(PERCENT)
        return dict(zip(("train", "val", "test"), parts, strict=True)), "cut 90/5/5 from one text"
    if "val" in found:
        return found, ""
    found["train"], found["val"] = found["train"].cut(PERCENT[1:])
    return found, "val is the last 5 % of train"


def digest(source: Source) -> str:
    """Return the SHA-256 of a text, as UTF-8."""
    sha256 = hashlib.sha256()
    for piece in source.pieces():
        sha256.update(piece.encode("utf-8"))
    return sha256.hexdigest()
