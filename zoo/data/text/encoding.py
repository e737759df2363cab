"""Turning all splits of a data set into tokens."""

from __future__ import annotations

from collections.abc import Mapping

from zoo.data.text.table import Table
from zoo.data.text.tokenizer import Tokenizer
from zoo.data.text.tokens import Tokens

Encoded = dict[str, tuple[Tokens, ...]]
"""The columns of every split."""


def encode(tables: Mapping[str, Table], tokenizer: Tokenizer) -> Encoded:
    """Encode every column of every split.

    Raises:
        InputError: A text has no tokens or too many; the message says where it stands.
    """
    return {name: tuple(tokenizer.encode(texts, table.place) for texts in table.texts) for name, table in tables.items()}


def fitted(tokenizer: Tokenizer, tokens: Encoded) -> Tokenizer:
    """Limit a tokenizer without a limit to the longest text it has read."""
    if tokenizer.max_length is not None:
        return tokenizer
    return tokenizer.limited(max(int(column.lengths.max()) for columns in tokens.values() for column in columns))


def shortened(tokenizer: Tokenizer, max_length: int | None) -> Tokenizer:
    """Let a trained model's tokenizer cut texts if a length is given; it never reads more than the model does."""
    if max_length is None:
        return tokenizer
    limits = [limit for limit in (max_length, tokenizer.max_length) if limit is not None]
    return tokenizer.limited(min(limits), truncation=True)
