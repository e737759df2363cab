import json

import pytest
import torch

from zoo.data.corpus import CorpusInfo
from zoo.errors import InputError

INFO = CorpusInfo(vocab_size=67, max_length=5, stream=True, sizes={"train": 90, "val": 20}, sha256="ab")


def test_facts_survive_json():
    assert CorpusInfo.from_dict(json.loads(json.dumps(INFO.to_dict()))) == INFO


def test_what_a_backbone_is_offered():
    assert INFO.inputs == "token_stream"
    assert INFO.keywords == {"vocab_size": 67, "max_length": 5}
    assert INFO.outputs == 67
    assert INFO.example(2).equal(torch.ones(2, 5, dtype=torch.int64))


@pytest.mark.parametrize(
    ("change", "words"), [({"task": "regression"}, "regression"), ({"sizes": None}, "sizes"), ({"more": 1}, "more")]
)
def test_other_facts_are_refused(change, words):
    values = {**INFO.to_dict(), **change}
    values = {key: value for key, value in values.items() if value is not None}
    with pytest.raises(InputError, match=words):
        CorpusInfo.from_dict(values)
