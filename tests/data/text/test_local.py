import pytest

from tests.errors import raises
from zoo.data import text as local
from zoo.data.module import ready


def text(*args, **options):
    return ready(local.text(*args, **options))


def pairs(*args, **options):
    return ready(local.pairs(*args, **options))


def ranking(*args, **options):
    return ready(local.ranking(*args, **options))


@pytest.fixture
def file(tmp_path):
    def write(name, rows):
        path = tmp_path / name
        path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def test_pairs(file):
    path = file("x.tsv", [("first", "second", "label"), *[(f"a{i}", f"b{i}", f"{i % 3}") for i in range(60)]])
    made = pairs(path)
    assert made.task == "pair_classification"
    assert made.info.num_classes == 3
    assert pairs(path, first="second", second="first").info.sha256 != made.info.sha256


def test_rankings(file):
    rows = [
        (f"{q}", "same question" if q < 2 else f"question {q}", f"answer {a}", f"{int(a == 1)}")
        for q in range(30)
        for a in range(3)
    ]
    path = file("x.tsv", [("id", "query", "answer", "label"), *rows])
    assert ranking(path, folds=29).info.sizes["test"] in (3, 6)
    assert ranking(path, group="id", folds=30).info.sizes["test"] == 3
    with raises("data", "folds=30", "29 questions"):
        ranking(path, folds=30)


def test_missing_columns_raise(file):
    path = file("x.tsv", [("a", "b"), ("c", "d")])
    path.with_suffix(".jsonl").write_text('{"a": "b"}\n')
    for read, name, options, code, *values in (
        (text, "x.tsv", {}, "missing", "x.tsv:1: ", "'text'", "'a', 'b'", "names of the columns"),
        (ranking, "x.tsv", {}, "missing", "'query'", "names of the columns"),
        (text, "x.jsonl", {}, "data", "x.jsonl:1: ", "'text'", "'a'"),
    ):
        with raises(code, *values):
            read(path.with_name(name), **options)
