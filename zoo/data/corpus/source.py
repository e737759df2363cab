"""Where running text comes from: anything that can be read from beginning to end, in pieces, and cut."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

PIECE = 2**20
"""Characters or bytes that are read at a time: enough for speed, few enough for any memory."""

PERCENT = (90, 95, 100)
"""Where training, validation and test text end, of a text without splits."""


class Source(Protocol):
    """Running text, all of it or a part."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def size(self) -> int:
        """How much there is, in units that `cut` counts in."""

    def pieces(self) -> Iterator[str]:
        """Yield the text from beginning to end, cut where lines end."""

    def cut(self, percent: Sequence[int]) -> Sequence[Source]:
        """Cut the text into parts that end after these shares of it."""


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
        return at_line_ends(self.content[start : start + PIECE] for start in range(0, self.size, PIECE))

    def cut(self, percent: Sequence[int]) -> list[Text]:
        """Cut the text into parts that end after these shares of its characters."""
        ends = [self.size * share // 100 for share in percent]
        return [Text(self.content[start:end], self.name) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def at_line_ends(parts: Iterable[str]) -> Iterator[str]:
    r"""Put parts of a text together anew, so that they end with a line, or before a space if a line is longer than a part.

    Words then stay whole, and so do letters that consist of several characters.

    Example:
        >>> list(at_line_ends(["to be", " or not\nto", " be", " that"]))
        ['to', ' be or not\n', 'to', ' be', ' that']
    """
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


def divided(splits: Mapping[str, Source], use_all: bool) -> tuple[dict[str, Source], str]:
    """Add the splits that are missing.

    Of a text without splits the last 10 per cent are for validation and testing, one half each; with `use_all` all of it is
    used for both. Without validation text alone, the last 5 per cent of the training text are.

    Returns:
        The splits, and a remark on what was cut from what; empty if nothing was.
    """
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
    """Return the SHA-256 of a text, as UTF-8.

    Raises:
        InputError: It cannot be read.
    """
    made = hashlib.sha256()
    for piece in source.pieces():
        made.update(piece.encode("utf-8"))
    return made.hexdigest()
