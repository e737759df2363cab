import random
import re

import pytest
from zoo_datasets.generated import mlu as preset

from zoo.data.module import ready


def mlu(**options):
    return ready(preset(**options))


LINE = re.compile(r"([xy])=(-?\d+),([xy])=(-?\d+),([xy])([-+*])([xy])")
COUNTS = {"train": 4000, "val": 300, "test": 500}


@pytest.fixture(scope="module")
def made():
    return mlu(**COUNTS)


def parts(source):
    first, one, second, other, left, sign, right = LINE.fullmatch(source).groups()
    return {first: int(one), second: int(other)}, first, left, sign, right


def rows(data):
    return [row for split in data.splits.values() for row in zip(split.texts[0], split.texts[1], strict=True)]


def test_every_value_is_right(made):
    assert made.info.sizes == COUNTS
    for source, target in rows(made):
        values, _, left, sign, right = parts(source)
        assert len(values) == 2
        assert all(-1000 <= value < 1000 for value in values.values())
        a, b = values[left], values[right]
        assert target == str({"+": a + b, "-": a - b, "*": a * b}[sign])


def test_no_triple_occurs_twice(made):
    found = [(values["x"], values["y"], sign) for values, _, _, sign, _ in map(parts, (source for source, _ in rows(made)))]
    assert len(set(found)) == len(found) == sum(COUNTS.values())


def test_pairs_depend_on_counts_only(made):
    before = random.getstate()
    other = mlu(**{**COUNTS, "train": 1000}, seed=7, batch_size=4)
    assert random.getstate() == before
    for name in ("val", "test"):
        assert other.splits[name].texts == made.splits[name].texts
    assert other.splits["train"].texts[0] == made.splits["train"].texts[0][:1000]
    assert made.splits["test"].texts[0][:2] == ["x=463,y=-738,x*x", "y=-433,x=-221,x+x"]
