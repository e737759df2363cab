"""Running text, read in pieces and cut into splits."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zoo.data.text.files import read_text

PIECE = 2**20  # characters
PERCENT = (90, 95, 100)  # ends of the training, validation and test parts of a text without splits


@dataclass(frozen=True)
class Text:
    """Running text.

    Attributes:
        content: The text.
        name: Its name in messages.

    Example:
        >>> [part.content for part in Text("to be or not").cut((50, 100))]
        ['to be ', 'or not']
    """

    content: str
    name: str = "the text"

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read a UTF-8 file, plain or compressed."""
        return cls(read_text(path), str(path))

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces that end at a line break, or before a space if there is none: no word is split."""
        rest = ""
        for start in range(0, len(self.content), PIECE):
            rest += self.content[start : start + PIECE]
            end = rest.rfind("\n") + 1 or rest.rfind(" ")
            end = end if end > 0 else len(rest)
            yield rest[:end]
            rest = rest[end:]
        if rest:
            yield rest

    def cut(self, percent: Sequence[int]) -> list[Self]:
        """Cut the text into parts that end at these percentages of its UTF-8 bytes, rounded up to whole characters."""
        data, parts, start = self.content.encode(), [], 0
        for share in percent:
            end = len(data) * share // 100
            while end < len(data) and data[end] & 0xC0 == 0x80:
                end += 1
            parts.append(type(self)(data[start:end].decode(), self.name))
            start = end
        return parts

    def digest(self) -> str:
        """Return the SHA-256 of the text as UTF-8."""
        return hashlib.sha256(self.content.encode()).hexdigest()


def add_splits(splits: Mapping[str, Text], use_all: bool) -> tuple[dict[str, Text], str]:
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
