"""Published and generated sets of source and target texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape
from typing import Any

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import OptionalPath, check_integer, options_of
from zoo.data.parallel import ParallelData, Sides, read_folder
from zoo.data.text.table import Table
from zoo.errors import InputError
from zoo_datasets.hub import attach_record, hub_columns

HUB_SPLITS = {"train": "train", "val": "validation", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class ParallelSet:
    """One published set of pairs.

    Attributes:
        name: Name of the preset.
        sides: Default source and target, which are file extensions.
        stems: File names of the splits, without extensions, in addition to `SPLITS`.
        repository: The data set repository on the Hub, if it has a correct copy. No commit is known, so the main branch is
            read, and only the numbers of rows detect changes.
        nested: Whether the repository has a configuration for each pair of languages, with both in the column `translation`.
        rows: Number of rows of the Hub's splits, by pair of languages, if known.
        tests: Names of the test sets test_NAME in a folder; the first is the default, and the only one on the Hub.
        untrained: Whether a folder without training pairs trains on its validation pairs.
        entities: Whether to replace HTML entities in files.
        defaults: Defaults of `ParallelData` that differ.
    """

    name: str
    sides: Sides = ("en", "de")
    stems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    repository: str = ""
    nested: bool = False
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tests: tuple[str, ...] = ()
    untrained: bool = False
    entities: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


def parallel_set(**record: Any) -> Callable[..., ParallelData]:
    """Return the preset of a published set: `preset(path=None, source=..., target=..., ...)`.

    With `path` it reads a folder of parallel files NAME.SIDE, plain or compressed (.gz, .xz); without, it downloads the set.
    `source` and `target` are the sides, which are file extensions.

    Args:
        record: The fields of `ParallelSet`, which is the attribute `record` of the preset.
    """
    parallel_set = ParallelSet(**record)
    source, target = parallel_set.sides
    extra = {"test": parallel_set.tests[0]} if parallel_set.tests else {}

    @options_of(ParallelData, extra=extra, **parallel_set.defaults)
    def preset(path: OptionalPath = None, source: str = source, target: str = target, **options: Any) -> ParallelData:
        record, test = preset.record, options.pop("test", "")  # type: ignore[attr-defined]
        check_parallel_set(record, path, (source, target), test)
        return ParallelData(partial(read_parallel_set, record, path, (source, target), test), **options)

    return attach_record(preset, parallel_set)


def check_parallel_set(record: ParallelSet, path: OptionalPath, sides: Sides, test: str) -> None:
    """Check the options of a preset before reading data."""
    if path is None and not record.repository:
        advice = f"use {record.name}(path=FOLDER) with a folder of train.{sides[0]}, train.{sides[1]} and so on"
        raise InputError(f"{record.name}: no correct copy on the Hugging Face Hub is known; {advice}")
    if path is None and record.tests and test != record.tests[0]:
        advice = f"use {record.name}(path=FOLDER, test={test})"
        raise InputError(f"{record.name}: the Hub has no test_{test}, only {record.tests[0]}; {advice}")


def read_parallel_set(record: ParallelSet, path: OptionalPath, sides: Sides, test: str) -> dict[str, Table]:
    """Read a set from the Hub or a local copy."""
    if path is None:
        return fetch_parallel_set(record, sides)
    names = {**record.stems, "test": (f"test_{test}",)} if record.tests else record.stems
    trained = ("train", "val") if record.untrained else ("train",)
    tables = read_folder(record.name, path, sides, names, trained)
    if record.tests and test != record.tests[0] and not (tables.get("test") and f"test_{test}." in tables["test"].source):
        message = f"{record.name}: {path} has no test_{test}.{sides[0]}; use test={record.tests[0]} or another test set"
        raise InputError(message, code="missing")
    if record.entities:
        for split, table in tables.items():
            tables[split] = replace(table, texts=tuple([*map(unescape, column)] for column in table.texts))
    return tables


def fetch_parallel_set(record: ParallelSet, sides: Sides) -> dict[str, Table]:
    """Load a set from the Hub or the cache of `datasets`, without pairs that have an empty side."""
    pair = "-".join(sorted(sides, key=lambda side: (side == "en", side)))  # English comes last, as in WMT
    parts = {part: record.rows.get(pair, {}).get(part) for part in HUB_SPLITS.values()}
    columns = [f"translation.{side}" if record.nested else side for side in sides]
    values = hub_columns(record.name, record.repository, parts, columns, pair if record.nested else None)
    splits = {}
    for split, part in HUB_SPLITS.items():
        texts = tuple([text or "" for text in column] for column in values[part])
        table = Table(texts, source=f"{record.repository}, {part}")
        splits[split] = table.where([all(map(str.strip, row)) for row in zip(*texts, strict=True)])
    return splits


SPAN = 2000
OPERATIONS = "+-*"
LONGEST = len("x=-1000,y=-1000,x*y") + 1  # tokens of the longest possible text, [EOS] included
SAMPLES = SPAN * SPAN * len(OPERATIONS)  # all values of x and y under all operations: 12 million


@options_of(ParallelData, tokenizer="char", max_length=LONGEST)
def mlu(train: int = 100_000, val: int = 1000, test: int = 2000, **options: Any) -> ParallelData:
    """Expressions of two variables and their value by character, such as ``y=691,x=-999,y*x`` and ``-690309``.

    Mathematical language understanding (Wangperawong 2018, arXiv 1812.02825), generated by its rules: x and y are integers from
    -1000 to 999, the operation is +, - or *. The order of the assignments and both operands are random and independent, and all
    distributions are uniform. Each of the 12 million triples of x, y and operation occurs at most once in all splits together.
    The test pairs depend on `test` only, the validation pairs on `val` and `test`.

    Args:
        train: Training pairs. The original has about 10.8 million, and 1.2 million to test on.
        val: Validation pairs.
        test: Test pairs.
        **options: Of `ParallelData`; the pairs do not depend on `seed`.

    Example:
        >>> from zoo.data.module import ready
        >>> data = ready(mlu(train=50, val=2, test=2))
        >>> [column[0] for column in data.splits["test"].texts]
        ['x=463,y=-738,x*x', '214369']
    """
    counts = {"test": test, "val": val, "train": train}
    total = sum(check_integer(name, count, 1) for name, count in counts.items())
    if total > SAMPLES:
        raise InputError(f"mlu: train={train}, val={val} and test={test} are {total:,} pairs; use at most {SAMPLES:,}")
    return ParallelData(partial(_generate, counts), **options)


def _generate(counts: dict[str, int]) -> dict[str, Table]:
    total = sum(counts.values())
    random = np.random.RandomState(0)  # its streams are frozen
    codes = random.permutation(SAMPLES)[:total]
    forms = random.randint(8, size=SAMPLES, dtype=np.uint8)[codes]
    ends = np.cumsum([counts["test"], counts["val"]])
    parts = zip(counts, np.split(codes, ends), np.split(forms, ends), strict=True)
    return {name: _pairs(code, form) for name, code, form in parts}


def _pairs(codes: Array, forms: Array) -> Table:
    """Return the texts of samples, from codes of (x, y, operation) and 3-bit forms: first variable, left and right operand."""
    operation, x, y = codes % 3, codes // 3 % SPAN - SPAN // 2, codes // 3 // SPAN - SPAN // 2
    swapped, left, right = forms & 1, forms >> 1 & 1, forms >> 2
    a, b = np.where(left, y, x), np.where(right, y, x)
    values = np.choose(operation, [a + b, a - b, a * b])
    columns = (column.tolist() for column in (operation, x, y, swapped, left, right))
    sources = [
        (f"y={y},x={x}," if swap else f"x={x},y={y},") + "xy"[i] + OPERATIONS[sign] + "xy"[j]
        for sign, x, y, swap, i, j in zip(*columns, strict=True)
    ]
    return Table((sources, [str(value) for value in values.tolist()]), source="mlu")
