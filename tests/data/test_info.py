"""DataInfo: JSON round trips, network sizes and example inputs."""

import json

import pytest
import torch

from tests.errors import raises
from zoo.data.info import CorpusInfo, ImageInfo, ParallelInfo, TextInfo, VectorInfo

COMMON = {"sizes": {"train": 9, "val": 1}, "sha256": "ab"}
TOKENS = {"vocab_size": 20, "max_length": 12}
ALL = {
    "image": ImageInfo(in_channels=3, image_size=8, classes=("a", "b"), mean=(0.1, 0.2, 0.3), std=(1, 2, 3), **COMMON),
    "vector": VectorInfo(in_features=4, out_features=3, **COMMON),
    "text": TextInfo(classes=("a", "b", "c"), **TOKENS, **COMMON),
    "text_pair": TextInfo(classes=("a", "b"), pair=True, vectors=3, **TOKENS, **COMMON),
    "tokens": CorpusInfo(stream=False, **TOKENS, **COMMON),
    "token_stream": CorpusInfo(stream=True, **TOKENS, **COMMON),
    "source_target": ParallelInfo(**TOKENS, **COMMON),
}
KWARGS = {
    "image": {"in_channels": 3, "image_size": 8, "num_classes": 2},
    "vector": {"in_features": 4, "out_features": 3},
    "text": {**TOKENS, "num_classes": 3, "pair": False},
    "text_pair": {**TOKENS, "num_classes": 2, "pair": True},
    "tokens": TOKENS,
    "token_stream": TOKENS,
    "source_target": {**TOKENS, "seq2seq": True},
}


@pytest.mark.parametrize("info", ALL.values(), ids=ALL)
def test_json_round_trip(info):
    again = type(info).from_dict(json.loads(json.dumps(info.to_dict())))
    assert again == info
    assert type(getattr(again, "classes", ())) is tuple


@pytest.mark.parametrize("name", ALL)
def test_model_kwargs_and_inputs(name):
    assert ALL[name].inputs == name
    assert ALL[name].model_kwargs == KWARGS[name]


def test_example_inputs():
    assert ALL["image"].example_inputs(2).shape == (2, 3, 8, 8)
    assert ALL["vector"].example_inputs(3).equal(torch.zeros(3, 4))
    for name in ("text", "tokens", "token_stream"):
        assert ALL[name].example_inputs(2).equal(torch.ones(2, 8, dtype=torch.int64))
    for name in ("text_pair", "source_target"):
        first, second = ALL[name].example_inputs(3)
        assert first.shape == second.shape == (3, 8)
        assert first.data_ptr() != second.data_ptr()


def test_missing_or_unknown_field_raises():
    values = ALL["text"].to_dict()
    with raises("invalid", "sizes"):
        TextInfo.from_dict({key: value for key, value in values.items() if key != "sizes"})
    with raises("unknown", "'color'"):
        TextInfo.from_dict(values | {"color": "red"})
