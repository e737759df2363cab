import pytest

from zoo.data.parallel.pairs import Pairs, check_splits, digest, split
from zoo.errors import InputError


def pairs(count=100, **options):
    return Pairs([f"s{i}" for i in range(count)], [f"t{i}" for i in range(count)], **{"name": "p", **options})


def test_rows_keep_their_places():
    taken = pairs(files=("a.en", "a.de")).take([7, 3]).take([1])
    assert (taken.sources, taken.targets) == (["s3"], ["t3"])
    assert (taken.place(0), taken.place(0, side=1)) == ("a.en:4", "a.de:4")
    assert pairs().take([7]).place(0) == "p, pair 8"


@pytest.mark.parametrize(("count", "held"), [(2, 1), (10, 1), (100, 5), (1000, 50)])
def test_five_per_cent_are_held_out_for_ever_the_same(count, held):
    found = split({"train": pairs(count), "test": pairs(3)})
    assert list(found) == ["train", "val", "test"]
    assert len(found["val"]) == held
    assert sorted([*found["train"].sources, *found["val"].sources]) == sorted(pairs(count).sources)
    assert found == split({"train": pairs(count), "test": pairs(3)})
    if count == 100:
        assert found["val"].targets == ["t2", "t26", "t55", "t75", "t86"]


def test_splits_that_are_there_stay():
    given = {"val": pairs(4), "train": pairs(9)}
    assert split(given) == given
    assert list(split(given)) == ["train", "val"]


def test_the_digest_tells_contents_apart():
    def one(*sides, name="train"):
        return digest({name: Pairs(*sides)})

    other = [one(["a", "bc"], ["d", "e"]), one(["ab", "c"], ["d", "e"]), one(["ab"], ["c"]), one(["ab"], ["c"], name="val")]
    assert len({*other, one(["c"], ["ab"])}) == 5
    assert one(["ab"], ["c"]) == other[2]
    assert digest({"train": pairs(), "val": pairs(2)}) == digest({"val": pairs(2, name="q"), "train": pairs()})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pairs(["a", "b"], ["c"], "p"), "^p: 2 sources but 1 targets"),
        (lambda: split({"train": pairs(1)}), "^p: one pair only"),
        (lambda: check_splits({"val": pairs()}), "train is needed"),
        (lambda: check_splits({"train": pairs(), "dev": pairs()}), "val and test may be there"),
        (lambda: check_splits({"train": pairs(), "test": pairs(0)}), "^p, test split: no pairs"),
    ],
)
def test_wrong_pairs_are_named(make, said):
    with pytest.raises(InputError, match=said):
        make()
