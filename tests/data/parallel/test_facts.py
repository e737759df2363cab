import json

import pytest

from zoo.data.parallel import ParallelInfo
from zoo.errors import InputError

INFO = ParallelInfo(vocab_size=30, max_length=12, sizes={"train": 9, "val": 1}, sha256="ab")


def test_facts_survive_json():
    assert ParallelInfo.from_dict(json.loads(json.dumps(INFO.to_dict()))) == INFO


def test_what_a_network_is_told():
    assert (INFO.task, INFO.inputs, INFO.outputs) == ("seq2seq", "source_target", 30)
    assert INFO.keywords == {"vocab_size": 30, "max_length": 12, "seq2seq": True}
    source, target = INFO.example(3)
    assert source.shape == target.shape == (3, 8)
    assert source.data_ptr() != target.data_ptr()


@pytest.mark.parametrize(
    ("change", "said"),
    [({"task": "translation"}, "task 'translation' is not seq2seq"), ({"more": 1}, r"unknown fields \['more'\]")],
)
def test_wrong_facts_are_named(change, said):
    with pytest.raises(InputError, match=said):
        ParallelInfo.from_dict({**INFO.to_dict(), **change})
