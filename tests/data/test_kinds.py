"""DataInfo of every kind come back from what a checkpoint keeps."""

import json

import pytest

from zoo.data import ImageInfo
from zoo.data.kinds import info_from
from zoo.data.points import VectorInfo
from zoo.data.text import TextInfo
from zoo.errors import InputError

COMMON = {"sizes": {"train": 9, "val": 1}, "sha256": "ab"}
IMAGE = ImageInfo(in_channels=1, image_size=8, classes=("a", "b"), mean=(0.5,), std=(0.2,), **COMMON)
TEXT = TextInfo(task="text_classification", classes=("a", "b", "c"), vocab_size=9, max_length=5, **COMMON)
PAIR = TextInfo(task="pair_classification", classes=("a", "b"), vocab_size=9, max_length=5, vectors=3, **COMMON)
RANKING = TextInfo(task="answer_ranking", classes=("irrelevant", "relevant"), vocab_size=9, max_length=5, **COMMON)
VECTOR = VectorInfo(task="regression", in_features=4, out_features=3, **COMMON)
ALL = {"image": IMAGE, "text": TEXT, "pair": PAIR, "ranking": RANKING, "vector": VECTOR}


@pytest.mark.parametrize("info", ALL.values(), ids=ALL)
def test_there_and_back_through_json(info):
    again = info_from(json.loads(json.dumps(info.to_dict())))
    assert again == info
    assert type(again) is type(info)


def test_every_kind_says_what_a_network_reads_and_answers():
    assert [info.inputs for info in ALL.values()] == ["image", "text", "text_pair", "text_pair", "vector"]
    assert [info.outputs for info in ALL.values()] == [2, 3, 2, 2, 3]


@pytest.mark.parametrize("task", ["text_generation", None, 3, ["regression"], {}], ids=str)
def test_an_unknown_task(task):
    with pytest.raises(
        InputError,
        match=r"the task .* is not one of image_classification, regression, language_model, seq2seq, text_classification",
    ):
        info_from(TEXT.to_dict() | {"task": task})


def test_no_task():
    with pytest.raises(InputError, match="the task None"):
        info_from({})


@pytest.mark.parametrize("info", ALL.values(), ids=ALL)
def test_a_field_too_few_or_too_many(info):
    values = info.to_dict()
    with pytest.raises(InputError, match="sizes"):
        info_from({key: value for key, value in values.items() if key != "sizes"})
    with pytest.raises(InputError, match="colour"):
        info_from(values | {"colour": "red"})


def test_the_facts_of_one_kind_under_the_task_of_another():
    with pytest.raises(InputError, match="image_size"):
        info_from(TEXT.to_dict() | {"task": "image_classification"})
