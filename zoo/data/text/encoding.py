"""Turning all splits of a data set into tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from zoo.data.text.reader import Reader
from zoo.data.text.table import Table
from zoo.data.text.tokens import Tokens

Encoded = dict[str, tuple[Tokens, ...]]
"""The columns of every split."""

LONGEST = 2**31 - 1
"""The limit of a reader until the longest text is known."""


def encode(tables: Mapping[str, Table], reader: Reader) -> Encoded:
    """Encode every column of every split.

    Raises:
        InputError: A text has no tokens or too many; the message says where it stands.
    """
    return {name: tuple(reader.encode(texts, table.place) for texts in table.texts) for name, table in tables.items()}


def fitted(reader: Reader, tokens: Encoded) -> Reader:
    """Let a reader without a limit read at most what it has read."""
    if reader.max_length < LONGEST:
        return reader
    return replace(reader, max_length=max(int(column.lengths.max()) for columns in tokens.values() for column in columns))


def shortened(reader: Reader, max_length: int | None) -> Reader:
    """Let a trained model's reader cut texts if a length is given; it never reads more than the model does."""
    if max_length is None:
        return reader
    return replace(reader, max_length=min(max_length, reader.max_length), cut=True)
