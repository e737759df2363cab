"""Running text from the Hugging Face Hub, held against its published length."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.data.corpus.source import Text
from zoo.data.sources import is_text, load
from zoo.errors import InputError

PARTS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class HubText:
    """Where the Hub keeps a text.

    Attributes:
        name: Name of the preset.
        repository: The data set repository; its column `text` holds the text, in one row or several.
        length: Characters of all its splits together.
    """

    name: str
    repository: str
    length: int


def fetch(record: HubText) -> Text:
    """Fetch a text (once; then it is in the library's cache), its splits laid end to end.

    Raises:
        InputError: The Hub cannot be reached, or its copy is another than it was.
    """
    loaded = load(record.name, record.repository)
    if missing := [part for part in PARTS if part not in loaded or not is_text(loaded[part].features.get("text"))]:
        raise _changed(record, f"no text in {', '.join(missing)}")
    content = "".join(row or "" for part in PARTS for row in loaded[part]["text"][:])
    if len(content) != record.length:
        raise _changed(record, f"{len(content):,} characters, not {record.length:,}")
    return Text(content, record.repository)


def _changed(record: HubText, what: str) -> InputError:
    name = record.name
    return InputError(
        f"{name}: the Hub's copy has changed: {record.repository} has {what}; use {name}(path=...) for a local copy"
    )
