import pytest

from zoo.data.parallel.module import hold_out as split
from zoo.data.text.splits import check_splits
from zoo.data.text.table import Table, digest
from zoo.errors import InputError


def pairs(count=100, **options):
    columns = [f"s{i}" for i in range(count)], [f"t{i}" for i in range(count)]
    return Table(columns, source=options.pop("name", "p"), noun="pair", **options)


def test_rows_keep_their_places():
    taken = pairs(files=("a.en", "a.de")).take([7, 3]).take([1])
    assert list(taken.texts) == [["s3"], ["t3"]]
    assert (taken.location(0), taken.location(0, side=1)) == ("a.en:4", "a.de:4")
    assert pairs().take([7]).location(0) == "p, pair 8"


@pytest.mark.parametrize(("count", "held"), [(2, 1), (10, 1), (100, 5), (1000, 50)])
def test_five_per_cent_are_held_out_for_ever_the_same(count, held):
    found = split({"train": pairs(count), "test": pairs(3)})
    assert list(found) == ["train", "val", "test"]
    assert len(found["val"]) == held
    assert sorted([*found["train"].texts[0], *found["val"].texts[0]]) == sorted(pairs(count).texts[0])
    assert digest(found) == digest(split({"train": pairs(count), "test": pairs(3)}))
    if count == 100:
        assert found["val"].texts[1] == ["t2", "t26", "t55", "t75", "t86"]


def test_splits_that_are_there_stay():
    given = {"val": pairs(4), "train": pairs(9)}
    assert split(given) == given
    assert list(split(given)) == ["train", "val"]


def test_the_digest_tells_contents_apart():
    def one(*sides, name="train"):
        return digest({name: Table(sides)})

    other = [one(["a", "bc"], ["d", "e"]), one(["ab", "c"], ["d", "e"]), one(["ab"], ["c"]), one(["ab"], ["c"], name="val")]
    assert len({*other, one(["c"], ["ab"])}) == 5
    assert one(["ab"], ["c"]) == other[2]
    assert digest({"train": pairs(), "val": pairs(2)}) == digest({"val": pairs(2, name="q"), "train": pairs()})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Table((["a", "b"], ["c"]), source="p"), "^p: 2 texts but 1 second texts"),
        (lambda: split({"train": pairs(1)}), "^p: one pair only"),
        (lambda: check_splits({"train": Table((["a"],), source="p")}, 2), "^p: 1 columns of text; 2 are needed"),
        (lambda: check_splits({"val": pairs()}, 2), "train is needed"),
        (lambda: check_splits({"train": pairs(), "dev": pairs()}, 2), "val and test may be there"),
        (lambda: check_splits({"train": pairs(), "test": pairs(0)}, 2), "^p, test split: no rows"),
    ],
)
def test_wrong_pairs_are_named(make, said):
    with pytest.raises(InputError, match=said):
        make()
