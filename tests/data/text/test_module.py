import math
import random

import numpy as np
import pandas as pd
import pytest
import torch

from tests.errors import raises
from zoo.data.module import ready
from zoo.data.text import Table, TextData, Tokenizer


def table(rows=60, pairs=False, labels="ab", source="f.tsv", seed=0, lines=True):
    draws = random.Random(seed)
    texts = [" ".join(draws.choice("uvwxyz") * draws.randint(1, 3) for _ in range(draws.randint(1, 12))) for _ in range(rows)]
    answers = [f"answer {i} {text}" for i, text in enumerate(texts)]
    columns = {"first": texts, "second": answers} if pairs else {"text": texts}
    columns["label"] = [labels[i % len(labels)] for i in range(rows)]
    return Table(columns, source, range(1, rows + 1) if lines else None)


def questions(count=20, answers=3):
    rows = [(f"what is {q}", f"it is {q} {a}", str(int(a == 0))) for q in range(count) for a in range(answers)]
    first, second, labels = (list(column) for column in zip(*rows, strict=True))
    return Table({"first": first, "second": second, "label": labels, "group": first}, "q.tsv")


def data(splits=None, task="text_classification", **options):
    return ready(TextData(splits or {"train": table()}, task, **{"batch_size": 8, **options}))


def rows(loader):
    """Return the tokens of every row without padding, and its label."""
    found = []
    for inputs, *labels in loader:
        columns = inputs if isinstance(inputs, tuple) else (inputs,)
        for line in zip(*columns, *labels, strict=True):
            found.append(tuple(tuple(part[part != 0].tolist()) if part.ndim else int(part) for part in line))
    return found


def test_batches_have_the_documented_shapes():
    made = data()
    inputs, labels = next(iter(made.val_dataloader()))
    assert inputs.dtype == labels.dtype == torch.int64
    assert inputs.shape[0] == labels.shape[0] == 5
    assert (inputs[:, -1] != 0).any(), "padded beyond the longest text"
    assert (inputs[inputs.ne(0).cumsum(1) != torch.arange(1, inputs.shape[1] + 1)] == 0).all(), "padding before a token"


def test_pairs_and_questions_have_more_parts():
    pair = data({"train": table(pairs=True)}, "pair_classification")
    (first, second), labels = next(iter(pair.train_dataloader()))
    assert first.shape[0] == second.shape[0] == labels.shape[0] == 8
    assert pair.info.inputs == "text_pair"
    ranked = data({"train": questions()}, "answer_ranking")
    (first, second), labels, groups = next(iter(ranked.test_dataloader()))
    assert groups.dtype == torch.int64
    assert groups.tolist() == [0, 0, 0, 1, 1, 1]
    assert labels.tolist() == [1, 0, 0, 1, 0, 0]
    assert ranked.info.classes == ("irrelevant", "relevant")
    for question in (0, 1):
        assert len({tuple(line.tolist()) for line in first[groups == question]}) == 1


def test_vocabulary_comes_from_training_texts_only():
    def splits(**words):
        return {
            name: Table({"text": [f"common {words.get(name, 'x')}"] * 4, "label": list("abab")})
            for name in ("train", "val", "test")
        }

    made = data(splits(val="hidden", test="secret"))
    assert made.tokenizer.tokens[2:] == ["common", "x"]
    assert rows(made.test_dataloader())[0][0] == (2, 1)
    assert made.info.vocab_size == 4
    one = Table({"text": [f"word{i}" for i in range(40)], "label": list("ab") * 20})
    held_out = ready(TextData({"train": one}, "text_classification"))
    train = set(held_out.splits["train"].texts[0])
    assert set(held_out.tokenizer.tokens[2:]) == train


def test_default_max_length_is_the_longest_text_of_all_splits():
    splits = {
        name: Table({"text": ["a " * n, "b"] * 2, "label": list("abab")}) for name, n in (("train", 3), ("val", 9), ("test", 5))
    }
    assert data(splits).info.max_length == 9
    cut = data(splits, max_length=4)
    assert cut.info.max_length == 4
    assert max(len(row[0]) for row in rows(cut.val_dataloader())) == 4
    assert data(splits, max_length=50).info.max_length == 50


def test_classes_are_sorted_by_value_or_letter_or_as_given():
    def classes(labels, **options):
        return data({"train": table(labels=labels)}, folds=2, **options).info.classes

    assert classes(["10", "9", "-1"]) == ("-1", "9", "10")
    assert classes(["b", "10", "9"]) == ("10", "9", "b")
    assert classes(["b", "a"], classes=["b", "a", "never"]) == ("b", "a", "never")
    assert classes(["0", "1"], names={"1": "yes", "0": "no"}) == ("yes", "no")
    assert classes(["0", "neg", "1"], names={"0": "negative", "neg": "negative", "1": "positive"}) == ("negative", "positive")


@pytest.mark.parametrize("column", [list, np.array, lambda values: pd.Series(values, range(9, 9 + len(values)))])
@pytest.mark.parametrize(("labels", "classes"), [((1, 10, 2), ("1", "2", "10")), ((True, False), ("false", "true"))])
def test_columns_may_be_arrays_or_series_with_labels_as_numbers_or_booleans(column, labels, classes):
    values = [label for _ in range(20) for label in labels]
    texts = [f"w{label}" for label in values]
    found = data({"train": Table({"text": column(texts), "label": column(values)})})
    assert found.info.classes == classes
    written = data({"train": Table({"text": texts, "label": [str(label).lower() for label in values]})})
    assert found.info == written.info
    assert rows(found.test_dataloader()) == rows(written.test_dataloader())


@pytest.mark.parametrize(("name", "cell"), [("text", None), ("text", 3), ("label", None), ("label", math.nan), ("label", 0.5)])
def test_a_cell_that_is_not_text_raises(name, cell):
    columns = {"text": ["x", "y"] * 20, "label": ["a", "b"] * 20}
    columns[name] = [*columns[name][:-1], cell]
    with raises("data", f"the data, row 40: column '{name}' is ", "expected text"):
        data({"train": Table(columns)})


def test_info_distinguishes_contents():
    base = data().info
    assert data().info.sha256 == base.sha256
    assert data(tokenizer="char", max_length=3, seed=4).info.sha256 == base.sha256
    changed = [
        data({"train": table(seed=1)}),
        data({"train": table(labels="ba")}),
        data(fold=1),
        data(names={"a": "x", "b": "y"}),
    ]
    assert len({base.sha256, *(one.info.sha256 for one in changed)}) == 5


def test_trained_model_keeps_its_tokenizer_and_classes():
    trained = data(names={"b": "B", "a": "A"}, max_length=6)
    other = {"train": table(seed=5), "test": table(seed=6)}
    again = data(other, names={"a": "A", "b": "B"}, max_length=6, tokenizer=trained.tokenizer, classes=trained.info.classes)
    assert again.files == trained.files
    assert again.info.classes == ("B", "A")
    assert again.info.vocab_size == trained.info.vocab_size
    stored = Tokenizer.from_json(trained.files["tokenizer.json"], trained.info)
    with raises("data", "f.tsv:", "at most 6"):
        data(other, names={"a": "A", "b": "B"}, tokenizer=stored, classes=("B", "A"))
    cut = data(other, names={"a": "A", "b": "B"}, tokenizer=stored, classes=("B", "A"), max_length=99)
    assert rows(cut.test_dataloader()) == rows(again.test_dataloader())
    assert cut.info.max_length == 6
    with raises("data", "f.tsv:1: unknown label 'a'", "'A', 'B'"):
        data(other, tokenizer=stored, classes=("B", "A"), max_length=6)
    one_class = {name: Table({"text": ["u v"] * 3, "label": ["a"] * 3}) for name in ("train", "test")}
    assert data(one_class, names={"a": "A", "b": "B"}, tokenizer=stored, classes=("B", "A")).info.classes == ("B", "A")


ONE = Table({"text": ["x", "y"], "label": ["a", "a"]}, "one.tsv")
EMPTY = Table({"text": ["x", "...", "\u200b "[1:], "y"], "label": ["a", "b", "a", "b"]}, "e.tsv", [2, 3, 4, 5])


@pytest.mark.parametrize(
    ("splits", "options", "code", "values"),
    [
        ({"train": ONE}, {}, "data", ("one.tsv: ", "'a'")),
        ({"train": ONE, "dev": ONE}, {}, "data", ("['dev', 'train']",)),
        ({"train": table(0)}, {}, "data", ("f.tsv, train split: ",)),
        ({"train": table(), "test": table(pairs=True)}, {}, "data", ("f.tsv, test split: 2 columns", "expected 1")),
        ({"train": questions(), "test": table(pairs=True, labels="01")}, {}, "data", ("f.tsv, test split: ", "questions")),
        ({"train": table(), "test": table(9, labels="abc")}, {}, "data", ("f.tsv:3: unknown label 'c'", "'a', 'b'")),
        ({"train": table(labels="abc")}, {"classes": ["a", "b"]}, "data", ("f.tsv:3: unknown label 'c'", "'a', 'b'")),
        ({"train": EMPTY, "val": EMPTY}, {}, "data", ("e.tsv:4: ",)),
        ({"train": table(labels=("0.5", "1.25"))}, {}, "data", ("f.tsv:1: label '0.5'",)),
        ({"train": table()}, {"fold": 10}, "invalid", ("fold=10", "[0, 9]")),
        ({"train": table()}, {"folds": 61}, "data", ("f.tsv: folds=61", "60 rows", "folds=60")),
        ({"train": table()}, {"val": 1.0}, "invalid", ("val=1.0", "(0, 1)")),
    ],
)
def test_invalid_data_raises(splits, options, code, values):
    with raises(code, *values):
        data(splits, **options)


def test_invalid_rankings_raise():
    with raises("data", "q.tsv: folds=21", "20 questions", "folds=20"):
        data({"train": questions()}, "answer_ranking", folds=21)
    wrong = Table({"first": ["q", "q"], "second": ["a", "b"], "label": ["1", "2"], "group": ["q", "q"]}, "q.tsv")
    with raises("data", "q.tsv, row 2: unknown label '2'", "'0', '1'"):
        data({"train": wrong}, "answer_ranking")


def test_ranking_split_without_a_right_answer_raises():
    right = table(40, pairs=True, labels="01")
    first, second = right.texts
    rows = Table({"first": first, "second": second, "label": right.labels, "group": first})
    wrong = Table({"first": first, "second": second, "label": ["0"] * 40, "group": first}, "wrong.tsv")
    with raises("data", "wrong.tsv: ", "test split"):
        ready(TextData({"train": rows, "test": wrong}, "answer_ranking"))
