from __future__ import annotations

from inspect import signature
from typing import Any, get_type_hints

import pytest

from zoo.data.module import ready
from zoo.data.text import Table, TextData, text_options
from zoo.errors import InputError
from zoo.registry.signatures import Signature

ROWS = Table((["one", "two"] * 20,), ["1", "2"] * 20)


@text_options(tokenizer="space", max_length=64)
def preset(path: str | None = None, *, variant: int = 3, **options: Any) -> TextData:
    """A preset."""
    return TextData({"train": ROWS}, "text_classification", **options)


@text_options
def plain(val: float = 0.5, **options):
    return TextData({"train": ROWS}, "text_classification", val=val, **options)


def test_options_are_in_the_signature():
    shown = signature(preset).parameters
    assert list(shown)[:3] == ["path", "variant", "classes"]
    assert {"vocab", "fold", "folds", "val", "batch_size", "num_workers", "seed", "lowercase", "min_count"} < set(shown)
    assert not {"options", "splits", "task", "names", "self"} & set(shown)
    assert (shown["tokenizer"].default, shown["max_length"].default, shown["vocab"].default) == ("space", 64, 30000)
    assert get_type_hints(preset)["max_length"] == int | None
    assert preset.__doc__ == "A preset."


def test_options_reach_the_data():
    made = ready(preset(folds=4, fold=1))
    assert made.info.sizes["test"] == 10
    assert made.info.max_length == 64
    assert ready(preset(max_length=7)).info.max_length == 7
    assert signature(plain).parameters["val"].default == 0.5
    assert ready(plain()).info.sizes["val"] == 18


def test_the_registry_checks_them():
    form = Signature.of("preset", preset, ())
    form.check({"max_length": None, "fold": 2}, ())
    with pytest.raises(InputError, match="did you mean 'tokenizer'"):
        form.check({"tokeniser": "word"}, ())
    with pytest.raises(InputError, match="max_length=long must be a whole number or none"):
        form.check({"max_length": "long"}, ())
    assert form.accepts("use_all")
    assert not form.accepts("names")


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="tokeniser"):
        preset(tokeniser="word")
    with pytest.raises(TypeError, match="colour"):
        text_options(lambda **options: plain())(colour="red")
    with pytest.raises(TypeError, match="no such options of TextData: colour"):
        text_options(colour="red")(plain)
