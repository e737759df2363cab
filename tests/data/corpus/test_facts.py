import json

import pytest
import torch

from zoo.data.corpus import CorpusFacts
from zoo.errors import InputError

FACTS = CorpusFacts(vocab_size=67, max_length=5, stream=True, sizes={"train": 90, "val": 20}, sha256="ab")


def test_facts_survive_json():
    assert CorpusFacts.from_dict(json.loads(json.dumps(FACTS.to_dict()))) == FACTS


def test_what_a_backbone_is_offered():
    assert FACTS.kind == "stream"
    assert FACTS.keywords == {"vocab_size": 67, "max_length": 5}
    assert FACTS.outputs == 67
    assert FACTS.example(2).equal(torch.ones(2, 5, dtype=torch.int64))


@pytest.mark.parametrize(
    ("change", "words"), [({"task": "regression"}, "regression"), ({"sizes": None}, "sizes"), ({"more": 1}, "more")]
)
def test_other_facts_are_refused(change, words):
    values = {**FACTS.to_dict(), **change}
    values = {key: value for key, value in values.items() if value is not None}
    with pytest.raises(InputError, match=words):
        CorpusFacts.from_dict(values)
