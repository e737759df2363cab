"""Published and generated sets of pairs of texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from typing import Any

import numpy as np

from zoo.data.loader import Array
from zoo.data.options import OptionalPath, check_integer, options_of
from zoo.data.parallel import ParallelData, Sides, read_folder
from zoo.data.text.reading import SPLITS
from zoo.data.text.table import Table, TextColumn
from zoo.errors import InputError
from zoo_datasets.hub import attach_record, hub_split, load
from zoo_datasets.text_sets import hub_table

PARTS = {"train": "train", "val": "validation", "test": "test"}  # our splits, and what the Hub calls them


@dataclass(frozen=True, kw_only=True)
class ParallelSet:
    """One published set of pairs.

    Attributes:
        name: Name of the preset.
        sides: Source and target by default, and the endings of their files.
        stems: What the files of a split are called before the general names, endings aside.
        repository: The data set repository on the Hub, if a copy is known to be right. No commit of any is known for certain,
            so the main branch is read, and the numbers of rows alone notice a change.
        paired: Whether the repository has a table for each pair of languages.
        column: The name of a language's column.
        rows: Rows of the Hub's splits, where they are known, by pair of languages.
        tests: The test sets that a folder may hold, as test_NAME; the first is the default, and the only one on the Hub.
        untrained: Whether a folder without training pairs trains on those to validate.
        entities: Whether HTML entities in the files are read as what they mean.
        defaults: Other defaults of the options of `ParallelData`.
    """

    name: str
    sides: Sides = ("en", "de")
    stems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    repository: str = ""
    paired: bool = False
    column: str = "{}"
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    tests: tuple[str, ...] = ()
    untrained: bool = False
    entities: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


def parallel_set(**record: Any) -> Callable[..., ParallelData]:
    """Return the preset of a published set: `preset(path=None, source=..., target=..., ...)`.

    With `path` it reads a folder of parallel files NAME.SIDE, line i of one side beside line i of the other, plain or packed as
    .gz or .xz; without, it fetches the set from the Hub once. `source` and `target` are the sides, and the endings of files.

    Args:
        record: The fields of `ParallelSet`; kept as the attribute `record` of the preset.
    """
    parallel_set = ParallelSet(**record)
    source, target = parallel_set.sides
    extra = {"test": parallel_set.tests[0]} if parallel_set.tests else {}

    @options_of(ParallelData, extra=extra, **parallel_set.defaults)
    def preset(path: OptionalPath = None, source: str = source, target: str = target, **options: Any) -> ParallelData:
        record, test = preset.record, options.pop("test", "")  # type: ignore[attr-defined]
        check(record, path, (source, target), test)
        return ParallelData(partial(read, record, path, (source, target), test), **options)

    return attach_record(preset, parallel_set)


def check(record: ParallelSet, path: OptionalPath, sides: Sides, test: str) -> None:
    """Check the options of a preset without data."""
    if path is not None:
        return
    if not record.repository:
        names = ", ".join(f"{stem}.*" for stems in _stems(record).values() for stem in stems[:1])
        where = f"use {record.name}(path=FOLDER) with a folder of {names}, each ending in {' and '.join(sides)}"
        raise InputError(f"{record.name}: no copy on the Hugging Face Hub is known to be right; {where}")
    if len(set(sides)) == 1:
        raise InputError(f"{record.name}: source={sides[0]} and target={sides[1]} are one language; give two")
    if record.tests and test != record.tests[0]:
        wanted = f"use {record.name}(path=FOLDER, test={test})"
        raise InputError(f"{record.name}: the copy on the Hub has no test_{test}, only {record.tests[0]}; {wanted}")


def read(record: ParallelSet, path: OptionalPath, sides: Sides, test: str) -> dict[str, Table]:
    """Read a set from the Hub, or from a local copy."""
    if path is None:
        return fetch(record, sides)
    stems = _stems(record)
    if record.tests:
        name = f"test_{test}"
        stems["test"] = (name, *(SPLITS["test"] if test == record.tests[0] else ()))
    tables = read_folder(record.name, path, sides, stems, untrained=record.untrained)
    if record.tests and test != record.tests[0] and "test" not in tables:
        missing = f"{path} has no {name}.{sides[0]} and {name}.{sides[1]}"
        raise InputError(f"{record.name}: {missing}; use test={record.tests[0]}, or another there is")
    if record.entities:  # the texts are then kept in memory
        for split, table in tables.items():
            tables[split] = table.changed(texts=tuple(TextColumn.of([*map(unescape, column)]) for column in table.texts))
    return tables


def _stems(record: ParallelSet) -> dict[str, Sequence[str]]:
    return {split: (*record.stems.get(split, ()), *general) for split, general in SPLITS.items()}


def fetch(record: ParallelSet, sides: Sides) -> dict[str, Table]:
    """Fetch a set (once; then it is in the library's cache); pairs of which a side is empty are left out."""
    pair = "-".join(sorted(sides, key=lambda side: (side == "en", side)))  # English comes last, as in WMT
    loaded = load(record.name, record.repository, pair if record.paired else None, revision="main")
    columns, rows = [record.column.format(side) for side in sides], record.rows.get(pair, {})
    splits = {}
    for split, part in PARTS.items():
        data = hub_split(record.name, record.repository, loaded, part, columns, rows=rows.get(part))
        table = hub_table(data, columns).changed(source=f"{record.repository}, {part}")
        splits[split] = table.where(~table.blank())
    return splits


SPAN = 2000
OPERATIONS = "+-*"
LONGEST = len("x=-1000,y=-1000,x*y") + 1  # tokens of the longest pair, [EOS] included, whether or not it is drawn
SAMPLES = SPAN * SPAN * len(OPERATIONS)  # all values of x and y under all operations: 12 million


@options_of(ParallelData, tokenizer="char", max_length=LONGEST)
def mlu(train: int = 100_000, val: int = 1000, test: int = 2000, **options: Any) -> ParallelData:
    """Expressions of two variables and their value, such as ``y=691,x=-999,y*x`` and ``-690309``, letter by letter.

    Mathematical language understanding (Wangperawong 2018, arXiv 1812.02825), generated by its rules: x and y are whole numbers
    from -1000 to 999, the operation is +, - or *. Which variable is assigned first is random, and so is, independently, each of
    the two that stand in the expression. All draws are uniform. A triple of x, y and operation, of which there are 12 million,
    occurs once at most in all splits together. The test pairs depend on `test` alone, the validation pairs on `val` and `test`.

    Args:
        train: Training pairs. The original has about 10.8 million, and 1.2 million to test on.
        val: Validation pairs.
        test: Test pairs.
        **options: Of `ParallelData`; `seed` decides the order of training only, never the pairs.

    Example:
        >>> from zoo.data.module import ready
        >>> data = ready(mlu(train=50, val=2, test=2))
        >>> [column[0] for column in data.splits["test"].texts]
        ['x=463,y=-738,x*x', '214369']
    """
    counts = {"test": test, "val": val, "train": train}
    total = sum(check_integer(name, count, 1) for name, count in counts.items())
    if total > SAMPLES:
        raise InputError(f"mlu: train={train}, val={val} and test={test} are {total:,} pairs; there are {SAMPLES:,}")
    return ParallelData(partial(_generate, counts), **options)


def _generate(counts: dict[str, int]) -> dict[str, Table]:
    total = sum(counts.values())
    random = np.random.RandomState(0)  # its streams are frozen for ever
    codes = random.permutation(SAMPLES)[:total]
    forms = random.randint(8, size=SAMPLES, dtype=np.uint8)[codes]
    ends = np.cumsum([counts["test"], counts["val"]])
    parts = zip(counts, np.split(codes, ends), np.split(forms, ends), strict=True)
    return {name: _pairs(code, form) for name, code, form in parts}


def _pairs(codes: Array, forms: Array) -> Table:
    """Write samples down: numbers of triples (x, y, operation), and three bits for what comes first, stands left and right."""
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
