"""Options of data sets: shown in the signature, checked before data are read, and passed on."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from tests.errors import raises
from zoo import registry
from zoo.data import ready
from zoo.data.options import options_of
from zoo.data.text import Table, TextData
from zoo.registry.resolution import Signature

ROWS = Table((["one", "two"] * 20,), ["1", "2"] * 20)


@options_of(TextData, tokenizer="space", max_length=64)
def preset(path: str | None = None, *, variant: int = 3, **options: Any) -> TextData:
    """A preset."""
    return TextData({"train": ROWS}, "text_classification", **options)


@options_of(TextData)
def plain(val: float = 0.5, **options):
    return TextData({"train": ROWS}, "text_classification", val=val, **options)


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
    with raises("invalid", "max_length=long must be a whole number or none"):
        form.check({"max_length": "long"}, ())
    assert form.accepts("use_all")
    assert not form.accepts("names")


@pytest.mark.parametrize(
    ("spec", "code", "value"),
    [
        ("rotation(rows=9)", "invalid", "rows=9"),
        ("hamilton(elements=0)", "invalid", "elements=0"),
        ("digits(num_workers=-1)", "invalid", "num_workers=-1"),
        ("entailment(variables=7)", "invalid", "between 4 and 6"),
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
