"""Pairs of texts, and the place that each of them came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zoo.data.loader import Array
from zoo.errors import InputError

HELD = 0.05
"""Share of the training pairs that is held out where there are none to validate on."""


@dataclass(frozen=True)
class Pairs:
    """Sources, texts to read, and targets, what to write of each.

    Attributes:
        sources: What is read.
        targets: What is to be written; one for every source.
        name: What an error message calls the place: a folder, a data set.
        files: The file of the sources and that of the targets, if a line of them is a text.
        rows: The number of every pair where it came from, from 0 on; their order if not given.

    Raises:
        InputError: There are more of one than of the other.

    Example:
        >>> pairs = Pairs(["one", "two", "three"], ["eins", "zwei", "drei"], "numbers", ("n.en", "n.de"))
        >>> pairs.take([2]).place(0), pairs.take([2]).place(0, side=1)
        ('n.en:3', 'n.de:3')
    """

    sources: Sequence[str]
    targets: Sequence[str]
    name: str = "the data"
    files: tuple[str, str] | None = None
    rows: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.targets):
            counts = f"{len(self.sources)} sources but {len(self.targets)} targets"
            raise InputError(f"{self.name}: {counts}; every source needs one target")

    def __len__(self) -> int:
        return len(self.sources)

    def place(self, row: int, side: int = 0) -> str:
        """Say where a source (side 0) or a target (1) stands: FILE:LINE, or the name and the number of the pair, from 1 on."""
        number = (row if self.rows is None else self.rows[row]) + 1
        return f"{self.name}, pair {number}" if self.files is None else f"{self.files[side]}:{number}"

    def take(self, index: Sequence[int] | Array) -> Pairs:
        """Return the pairs of these numbers; they keep their places."""
        places: list[int] = np.asarray(index, dtype=np.int64).tolist()
        sources, targets = ([column[i] for i in places] for column in (self.sources, self.targets))
        rows = places if self.rows is None else [self.rows[i] for i in places]
        return replace(self, sources=sources, targets=targets, rows=rows)


def check_splits(splits: Mapping[str, Pairs]) -> None:
    """Refuse splits that cannot be trained on.

    Raises:
        InputError: A split is missing, unknown or empty.
    """
    if "train" not in splits or set(splits) - {"train", "val", "test"}:
        raise InputError(f"splits {sorted(splits)}: train is needed; val and test may be there")
    for name, pairs in splits.items():
        if len(pairs) == 0:
            raise InputError(f"{pairs.name}, {name} split: no pairs; every split needs at least one")


def split(splits: Mapping[str, Pairs]) -> dict[str, Pairs]:
    """Hold pairs out of the training split if there are none to validate on: always the same, and at least one.

    Raises:
        InputError: There is only one pair.
    """
    found = dict(splits)
    if "val" not in found:
        train = found["train"]
        if len(train) == 1:
            raise InputError(f"{train.name}: one pair only; one is held out to validate on, and none is left to train on")
        held = np.zeros(len(train), dtype=np.bool_)
        # The streams of RandomState are frozen for ever.
        held[np.random.RandomState(0).permutation(len(train))[: max(1, round(HELD * len(train)))]] = True
        found |= {"train": train.take(np.flatnonzero(~held)), "val": train.take(np.flatnonzero(held))}
    return {name: found[name] for name in ("train", "val", "test") if name in found}


def digest(splits: Mapping[str, Pairs]) -> str:
    """Return the SHA-256 of the names and the texts of all splits."""
    sha = hashlib.sha256()
    for name in sorted(splits):
        for column in (splits[name].sources, splits[name].targets):
            content = [text.encode("utf-8", "surrogatepass") for text in column]
            sha.update(f"{name} {len(content)}".encode())
            sha.update(np.array([len(text) for text in content], dtype="<i8").tobytes())
            sha.update(b"".join(content))
    return sha.hexdigest()
