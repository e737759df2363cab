"""What is known of the published sets of pairs: where the Hub keeps them, and what their files are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zoo.data.parallel.files import STEMS

SPLITS = {"train": "train", "val": "validation", "test": "test"}
"""Our splits, and what the Hub calls them."""


@dataclass(frozen=True, kw_only=True)
class ParallelSet:
    """One published set of pairs.

    Attributes:
        name: Name of the preset.
        stems: What its files are called, endings aside, by split.
        repository: The data set repository on the Hub. No commit of any is known for certain, so the main branch is read, and
            the numbers of rows alone notice a change.
        paired: Whether the repository has a table for each pair of languages.
        column: The name of a language's column.
        rows: Rows of the Hub's splits, where they are known, by pair of languages.
    """

    name: str
    stems: Mapping[str, Sequence[str]]
    repository: str
    paired: bool = False
    column: str = "{}"
    rows: Mapping[str, Mapping[str, int]]


def table_of(sides: tuple[str, str]) -> str:
    """Return the name of the table of two languages: English comes last, as in WMT.

    >>> table_of(("en", "de")), table_of(("ru", "en"))
    ('de-en', 'ru-en')
    """
    return "-".join(sorted(sides, key=lambda side: (side == "en", side)))


def _named(split: str, *stems: str) -> dict[str, Sequence[str]]:
    return {split: (*stems, *STEMS[split])}


MULTI30K = ParallelSet(
    name="multi30k",
    stems=STEMS,
    repository="bentrevett/multi30k",
    rows={"de-en": {"train": 29000, "validation": 1014, "test": 1000}},
)
IWSLT15 = {**STEMS, **_named("val", "tst2012"), **_named("test", "tst2013")}
WMT14 = ParallelSet(
    name="wmt14",
    stems={**STEMS, **_named("val", "newstest2013"), **_named("test", "newstest2014")},
    repository="wmt/wmt14",
    paired=True,
    column="translation.{}",
    rows={"de-en": {"train": 4508785, "validation": 3000, "test": 3003}},
)
WMT16 = ParallelSet(
    name="wmt16",
    stems={**STEMS, **_named("val", "newstest2015"), **_named("test", "newstest2016")},
    repository="wmt/wmt16",
    paired=True,
    column="translation.{}",
    rows={"de-en": {"train": 4548885, "validation": 2169, "test": 2999}},
)
