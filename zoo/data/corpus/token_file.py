"""Token numbers of a whole text, in memory or in a mapped file that is made once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.corpus.encoding import encoder, number_type
from zoo.data.corpus.source import Source
from zoo.data.loader import Array
from zoo.data.text.columns import cache, written
from zoo.data.text.tokenizer import Tokenizer

SMALL = 2**23
"""Texts up to this size are kept in memory: to encode them takes no longer than to find a file."""

RULE = b"1"  # names the way in which text becomes tokens; a new one makes new files


class TokenFile:
    """Token numbers in a file, read where they lie; a worker process opens it anew instead of getting a copy.

    Args:
        path: Nothing but the numbers.
        kind: Their type.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind
        self._numbers: Array = np.memmap(path, dtype=kind, mode="r")

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, places: Any) -> Array:
        return np.asarray(self._numbers[places])

    def __reduce__(self) -> tuple[type[TokenFile], tuple[Path, str]]:
        return TokenFile, (self.path, self.kind)


Numbers = Array | TokenFile


def tokens_of(source: Source, sha256: str, tokenizer: Tokenizer) -> Numbers:
    """Return the token numbers of a text; those of a large one lie in a file in the user's cache, which is made if need be.

    Args:
        source: The text.
        sha256: Its digest.
        tokenizer: What turns it into tokens.

    Raises:
        InputError: The text cannot be read, or the file not be written.
    """
    kind, encode = number_type(tokenizer), encoder(tokenizer)
    if source.size <= SMALL:
        return np.concatenate([np.empty(0, kind), *map(encode, source.pieces())])
    name = hashlib.sha256(b"\0".join([RULE, sha256.encode(), tokenizer.to_json().encode("utf-8")])).hexdigest()
    path = cache("tokens") / f"{name}.{kind[1:]}"
    if not path.exists():
        with written(path) as file:
            for piece in source.pieces():
                file.write(encode(piece).tobytes())
    return TokenFile(path, kind)
