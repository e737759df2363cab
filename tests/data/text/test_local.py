import json

import pytest

from zoo.data.module import ready
from zoo.data.text import local
from zoo.errors import InputError


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


def test_texts(file):
    path = file("x.tsv", [("label", "text"), *[(f"{i % 2}", f"word{i} here") for i in range(40)]])
    assert text(path).info == text(path, text=1, label=0).info
    assert text(path).info.sizes == {"train": 32, "val": 4, "test": 4}


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
    with pytest.raises(InputError, match="folds=30, but there are 29 questions"):
        ranking(path, folds=30)


def test_json_lines_of_true_and_false_are_rankings(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [{"query": f"q{q}", "answer": f"a{a}", "label": a == 1} for q in range(20) for a in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, labels, groups = next(iter(ranking(path).test_dataloader()))
    assert labels.tolist() == [0, 1, 0, 1]
    assert groups.tolist() == [0, 0, 1, 1]


def test_folders(file, tmp_path):
    for name in ("train", "dev", "test"):
        file(f"{name}.tsv", [(f"{i % 2}", f"word{i}") for i in range(6)])
    made = text(tmp_path, text=1, label=0)
    assert made.has_split
    assert made.info.sizes == {"train": 6, "val": 6, "test": 6}


def test_files_name_the_line_of_a_label_that_training_has_not(file, tmp_path):
    file("train.tsv", [("a", "x"), ("b", "y"), ("a", "z")])
    test = file("test.tsv", [("a", "x"), ("c", "y")])
    with pytest.raises(InputError) as caught:
        text(tmp_path, text=1, label=0)
    assert str(caught.value) == f"{test}:2: label 'c' is not in the training split, which has 'a', 'b'"


def test_missing_columns_are_named(file):
    path = file("x.tsv", [("a", "b"), ("c", "d")])
    with pytest.raises(
        InputError,
        match=r"x.tsv:1: no column 'text'; there is 'a', 'b'; give the columns to read by name, text=NAME, label=NAME, or by",
    ):
        text(path)
    with pytest.raises(InputError, match=r"x.tsv:1: no column 'query'.* by name, query=NAME, answer=NAME, label=NAME, or by"):
        ranking(path)
    with pytest.raises(InputError, match="query=NAME, answer=NAME, label=NAME, group=NAME, or by"):
        ranking(path, group="id")
    with pytest.raises(InputError, match="first=NAME, second=NAME, label=NAME, or by"):
        pairs(path)
    lines = path.with_suffix(".jsonl")
    lines.write_text('{"a": "b"}\n')
    with pytest.raises(InputError, match=r"x.jsonl:1: no column 'text'; there is 'a'; give .* by name, text=NAME, label=NAME$"):
        text(lines)
