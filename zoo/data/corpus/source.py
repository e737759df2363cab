"""Running text in memory or in files of any size, read in pieces and cut into splits."""

import codecs
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

from zoo.data.options import DataError
from zoo.data.text.files import OPENERS, non_utf8, open_binary

PIECE = 2**20  # characters or bytes per read
PERCENT = (90, 95, 100)  # ends of the training, validation and test parts of a text without splits


@dataclass(frozen=True)
class Text:
    """Running text in memory.

    Attributes:
        content: The text.
        name: Its name in messages.

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
        return _split_at_words(self.content[start : start + PIECE] for start in range(0, self.size, PIECE))

    def cut(self, percent: Sequence[int]) -> list[Self]:
        """Cut the text into parts that end at these percentages of its characters."""
        ends = [self.size * share // 100 for share in percent]
        return [type(self)(self.content[start:end], self.name) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _split_at_words(parts: Iterable[str]) -> Iterator[str]:
    """Move the ends of parts to a line break, or before a space if there is none: no word or combined character is split."""
    rest = ""
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
    """A UTF-8 file, or a part of it; a byte order mark is removed.

    Attributes:
        path: The file; .gz and .xz are decompressed as they are read.
        start: The first byte of the part.
        stop: The byte after the last one.
    """

    path: Path
    start: int
    stop: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the whole file."""
        is_plain = path.is_file() and path.suffix.lower() not in OPENERS
        return cls(path, 0, path.stat().st_size if is_plain else sum(map(len, _read_bytes(path, 0, None))))

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
        return _split_at_words(self._decode())

    def cut(self, percent: Sequence[int]) -> list[Self]:
        """Cut the text into parts that end at these percentages of its bytes, rounded up to whole characters."""
        ends = [self.stop if share == 100 else self._boundary(self.start + self.size * share // 100) for share in percent]
        return [type(self)(self.path, start, end) for start, end in zip([self.start, *ends[:-1]], ends, strict=True)]

    def _boundary(self, offset: int) -> int:
        """Return the first offset from this one at which a character begins."""
        following = b"".join(_read_bytes(self.path, offset, min(offset + 4, self.stop)))
        return offset + next((i for i, byte in enumerate(following) if byte & 0xC0 != 0x80), len(following))

    def _decode(self) -> Iterator[str]:
        decoder, offset, is_first = codecs.getincrementaldecoder("utf-8")(), self.start, self.start == 0
        for part in chain(_read_bytes(self.path, self.start, self.stop), [b""]):
            offset += len(part)
            try:
                text = decoder.decode(part, final=not part)
            except UnicodeDecodeError as error:
                wrong = offset - len(error.object) + error.start
                line = 1 + sum(before.count(b"\n") for before in _read_bytes(self.path, 0, wrong))
                raise DataError(f"{self.path}:{line}: {non_utf8(error.object[error.start])}") from error
            yield text.removeprefix("\ufeff") if is_first else text
            is_first = False


def _read_bytes(path: Path, start: int, stop: int | None) -> Iterator[bytes]:
    with open_binary(path) as stream:
        stream.seek(start)
        left = PIECE if stop is None else stop - start
        while left > 0 and (part := stream.read(min(PIECE, left))):
            left -= 0 if stop is None else len(part)
            yield part


Source = Text | TextFile


def add_splits(splits: Mapping[str, Source], use_all: bool) -> tuple[dict[str, Source], str]:
    """Cut missing splits from the training text, see `CorpusData`; return the splits and a comment on how they were made."""
    complete = dict(splits)
    if set(complete) == {"train"} and use_all:
        return dict.fromkeys(("train", "val", "test"), complete["train"]), "all of one text"
    if set(complete) == {"train"}:
        parts = complete["train"].cut(PERCENT)
        return dict(zip(("train", "val", "test"), parts, strict=True)), "cut 90/5/5 from one text"
    if "val" in complete:
        return complete, ""
    complete["train"], complete["val"] = complete["train"].cut(PERCENT[1:])
    return complete, "val is the last 5 % of train"


def source_digest(source: Source) -> str:
    """Return the SHA-256 of a text, as UTF-8."""
    sha256 = hashlib.sha256()
    for piece in source.pieces():
        sha256.update(piece.encode("utf-8"))
    return sha256.hexdigest()
