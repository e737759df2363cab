"""Options of data sets, and published sets from the Hub, with the function of `datasets` that downloads them replaced."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import datasets
import pytest
from datasets import Dataset, DatasetDict
from zoo_datasets import corpora, published

from tests.errors import raises
from zoo import registry
from zoo.data import ready
from zoo.data.text import Table, TextData
from zoo.registry import passes_options_to
from zoo.registry.resolution import Signature

ROWS = {"train": 12, "validation": 5, "test": 4}
PLAY = "".join(f"SPEAKER {i}:\nWhat is {i}, my lord?\n\n" for i in range(100))


@pytest.fixture
def hub(monkeypatch):
    """Return the function that sets the columns of every split, and returns the requests."""

    def serve(parts):
        asked = []

        def load_dataset(*args, **options):
            asked.append((*args, options["revision"]))
            return DatasetDict({part: Dataset.from_dict(columns) for part, columns in parts.items()})

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return asked

    return serve


@pytest.fixture
def changed(monkeypatch):
    """Return the function that changes the record of a preset."""

    def change(preset, **fields):
        monkeypatch.setattr(preset, "record", replace(preset.record, **fields))

    return change


def texts(side, count):
    return [f"{side} {i}, schön" for i in range(count)]


def test_pairs_with_an_empty_side_are_removed_but_counted(hub, changed):
    columns = {part: {side: texts(side, rows) for side in ("en", "de")} for part, rows in ROWS.items()}
    columns["train"]["en"][3], columns["train"]["de"][1] = None, " "
    asked = hub(columns)
    changed(published.multi30k, rows={"de-en": ROWS})
    splits = ready(published.multi30k(tokenizer="space")).splits
    kept = [i for i in range(12) if i not in (1, 3)]
    assert splits["train"].texts == tuple([f"{side} {i}, schön" for i in kept] for side in ("en", "de"))
    assert splits["val"].texts == (texts("en", 5), texts("de", 5))
    assert splits["test"].texts == (texts("en", 4), texts("de", 4))
    assert asked == [("bentrevett/multi30k", None, "main")]


def test_nested_columns_of_a_pair_of_languages(hub, changed):
    rows = {part: [{"ru": f"ru {i}", "en": f"en {i}"} for i in range(count)] for part, count in ROWS.items()}
    asked = hub({part: {"translation": column} for part, column in rows.items()})
    data = ready(published.wmt14(target="ru", tokenizer="space"))
    assert asked == [("wmt/wmt14", "ru-en", "main")]
    assert data.splits["test"].texts == tuple([f"{side} {i}" for i in range(4)] for side in ("en", "ru"))


def test_splits_of_a_text_are_concatenated_and_cut(hub):
    hub(
        {
            "train": {"text": [PLAY[:50], None, PLAY[50:2000]]},
            "validation": {"text": [PLAY[2000:2300]]},
            "test": {"text": [PLAY[2300:]]},
        }
    )
    data = ready(corpora.corpus_set("play", len(PLAY), "play", "owner/play")(max_length=32))
    ends = [len(PLAY) * share // 100 for share in (0, 90, 95, 100)]
    found = {split: data.tokenizer.decode(tokens[:]) for split, tokens in data.splits.items()}
    assert found == {split: PLAY[ends[i] : ends[i + 1]] for i, split in enumerate(("train", "val", "test"))}
    with raises("failed", f"{len(PLAY):,} characters, expected 100,000,000", "text8(path=...)"):
        ready(corpora.text8(max_length=32))


def test_labeled_texts_have_a_revision_and_no_rows_without_a_label(hub, changed):
    def columns(count):
        return {
            "question": [f"why {i} ?" for i in range(count)],
            "sentence": ["so ."] * count,
            "label": [i % 3 - 1 for i in range(count)],
        }

    asked = hub({"train": columns(60), "validation": columns(15)})
    changed(published.qnli, rows={"train": 60, "validation": 15})
    info = ready(published.qnli()).info
    assert (info.sizes, info.classes) == ({"train": 36, "val": 4, "test": 10}, ("entailment", "not_entailment"))
    name, _, revision = published.qnli.record.repository.partition("@")
    assert asked == [(name, "qnli", revision)]


def test_changed_or_missing_copies_raise(hub, changed, monkeypatch):
    columns = {part: {side: texts(side, rows) for side in ("en", "de")} for part, rows in ROWS.items()}
    hub(columns)
    changed(published.multi30k, rows={"de-en": ROWS | {"test": 6}})
    with raises("failed", "4 rows in test, expected 6", "multi30k(path=...)"):
        ready(published.multi30k())
    hub({"train": columns["train"], "test": columns["test"]})
    with raises("failed", "KeyError: 'validation'", "multi30k(path=...)"):
        ready(published.multi30k())

    def refuse(*args, **options):
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with raises("failed", "cornell-movie-review-data/rotten_tomatoes", "ConnectionError: no route", "mr(path=...)"):
        ready(published.mr())


TEXT_ROWS = Table({"text": ["one", "two"] * 20, "label": ["1", "2"] * 20})


@passes_options_to(TextData, tokenizer="space", max_length=64)
def preset(path: str | None = None, *, variant: int = 3, **options: Any) -> TextData:
    """A preset."""
    return TextData({"train": TEXT_ROWS}, "text_classification", **options)


@passes_options_to(TextData)
def plain(val: float = 0.5, **options):
    return TextData({"train": TEXT_ROWS}, "text_classification", val=val, **options)


def test_options_are_in_the_signature():
    shown = signature(preset).parameters
    assert list(shown)[:3] == ["path", "variant", "classes"]
    assert {"vocab", "fold", "folds", "val", "batch_size", "num_workers", "seed", "lowercase", "min_count"} < set(shown)
    assert not {"options", "splits", "task", "names", "self"} & set(shown)
    assert (shown["tokenizer"].default, shown["max_length"].default, shown["vocab"].default) == ("space", 64, 30000)
    assert shown["max_length"].annotation == int | None
    assert preset.__doc__ == "A preset."


def test_options_are_used():
    made = ready(preset(folds=4, fold=1))
    assert made.info.sizes["test"] == 10
    assert made.info.max_length == 64
    assert ready(preset(max_length=7)).info.max_length == 7
    assert signature(plain).parameters["val"].default == 0.5
    assert ready(plain()).info.sizes["val"] == 18


def test_registry_checks_options():
    form = Signature.of("preset", preset, ())
    form.check({"max_length": None, "fold": 2}, ())
    with raises("unknown", "did you mean 'tokenizer'"):
        form.check({"tokeniser": "word"}, ())
    with raises("invalid", "max_length='long' must be a whole number or none"):
        form.check({"max_length": "long"}, ())
    assert form.accepts("use_all")
    assert not form.accepts("names")


@pytest.mark.parametrize(
    ("spec", "code", "value"),
    [
        ("rotation(rows=9)", "invalid", "rows=9"),
        ("hamilton(elements=0)", "invalid", "elements=0"),
        ("digits(num_workers=-1)", "invalid", "num_workers=-1"),
        ("entailment(variables=7)", "invalid", "[4, 6]"),
        ("mlu(train=12000000)", "invalid", "12,003,000 pairs"),
        ("glosses(task=poems)", "unknown", "task='poems'; use topics, pairs, ranking, language_model, seq2seq"),
        ("glosses(task=language_model,batch_tokens=9)", "unknown", "option batch_tokens; use limit, "),
        ("glosses(task=seq2seq,vocab=99)", "invalid", "vocab=99: the tokenizer 'bpe' needs at least 260 tokens"),
    ],
)
def test_invalid_options_raise_before_data_are_read(spec, code, value):
    with raises(code, value):
        registry.create("datasets", spec)


def test_a_limit_is_checked():
    with raises("invalid", "limit=0"):
        ready(registry.create("datasets", "glosses(task=language_model,limit=0)"))
