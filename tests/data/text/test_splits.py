import numpy as np
import pytest

from tests.errors import raises
from zoo.data.splits import split_tables
from zoo.data.text import Table


def table(sizes=(50, 23, 11)):
    labels = [name for name, size in zip("abc", sizes, strict=True) for _ in range(size)]
    return Table(([f"{i}" for i in range(len(labels))],), labels)


def asked(count=23):
    rows = [(f"q{q}", f"q{q} a{a}") for q in range(count) for a in range(1 + q % 4)]
    first, second = (list(column) for column in zip(*rows, strict=True))
    return Table((first, second), ["0"] * len(rows), groups=first)


def cut(rows, **options):
    return split_tables({"train": rows}, **{"val": 0.1, "folds": 5, "fold": 0, **options})


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("folds", [2, 5, 11])
def test_folds_partition_the_rows(grouped, folds):
    rows = asked() if grouped else table()
    tests = [cut(rows, folds=folds, fold=fold)["test"].texts[-1] for fold in range(folds)]
    assert sorted(text for test in tests for text in test) == sorted(rows.texts[-1])


def test_folds_are_stratified():
    tests = [cut(table(), fold=fold)["test"] for fold in range(5)]
    counts = np.array([[test.labels.count(label) for label in "abc"] for test in tests])
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(counts.sum(1)) <= 1
    val = cut(table(), val=0.3)["val"]
    assert [val.labels.count(label) for label in "abc"] == pytest.approx([12, 5.5, 2.6], abs=1)


def test_questions_are_not_cut():
    for fold in range(5):
        parts = cut(asked(), fold=fold)
        seen = [set(part.texts[0]) for part in parts.values()]
        assert len(set.union(*seen)) == sum(map(len, seen)) == 23
        assert len(seen[2]) in (4, 5)


def test_only_row_of_a_class_stays_in_training():
    rows = Table(([str(i) for i in range(20)],), ["rare"] + [f"{i % 6}" for i in range(19)])
    for val in (0.1, 0.5, 0.9):
        assert "rare" in split_tables({"train": rows, "test": rows}, val, 10, 0)["train"].labels


def test_only_row_of_a_class_is_in_no_test_fold():
    rows = Table(([str(i) for i in range(21)],), ["once"] + ["twice"] * 2 + [f"{i % 3}" for i in range(18)])
    tested = []
    for fold in range(5):
        found = cut(rows, folds=5, fold=fold)
        assert "once" in found["train"].labels
        tested += found["test"].texts[0]
    assert sorted(tested, key=int) == [str(i) for i in range(1, 21)]


def test_more_folds_than_rows_raise():
    rows = Table((list("abcde"),), list("11112"), source="f.csv")
    with raises("data", "f.csv: folds=5", "4 rows", "folds=4"):
        cut(rows)


def test_columns_of_different_lengths_raise():
    with raises("data", "f: 2 texts but 1 labels"):
        Table((["a", "b"],), ["x"], source="f")
    with raises("data", "3 columns of text"):
        Table((["a"], ["b"], ["c"]), ["x"])
    with raises("data", "2 texts but 1 groups"):
        Table((["a", "b"],), ["x", "y"], groups=["g"])


def test_taken_rows_keep_their_locations():
    lined = Table((["a", "b", "c"],), list("xyz"), list("ghi"), "f.tsv", [2, 4, 5])
    taken = lined.take([2, 1]).take([1])
    assert (taken.location(0), taken.texts[0], taken.labels, taken.groups) == ("f.tsv:4", ["b"], ["y"], ["h"])
    plain = Table((["a", "b", "c"],), list("xyz"))
    assert plain.location(2) == plain.take([2, 1]).take([0]).location(0) == "the data, row 3"
