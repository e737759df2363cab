import json

import pytest
import torch

from zoo.data.text import Table, TextInfo
from zoo.errors import InputError


def info(task="text_classification", **changes):
    values = {"classes": ("a", "b", "c"), "vocab_size": 20, "max_length": 12, "sizes": {"train": 5}, "sha256": "0"}
    return TextInfo(task=task, **{**values, **changes})


def test_facts_survive_json():
    for made in (info(), info("answer_ranking", vectors=300)):
        assert TextInfo.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize("change", [{"extra": 1}, {"task": "image_classification"}])
def test_wrong_facts_are_refused(change):
    with pytest.raises(InputError, match="data info"):
        TextInfo.from_dict(info().to_dict() | change)


def test_a_network_learns_its_sizes():
    assert info().keywords == {"vocab_size": 20, "max_length": 12, "num_classes": 3, "pair": False}
    assert info("pair_classification").keywords["pair"] is True
    assert (info().inputs, info().outputs) == ("text", 3)
    assert [info(task).inputs for task in ("pair_classification", "answer_ranking")] == ["text_pair", "text_pair"]


def test_examples_have_the_form_of_a_batch():
    assert torch.equal(info().example(2), torch.ones(2, 8, dtype=torch.int64))
    first, second = info("answer_ranking", max_length=3).example(2)
    assert first.shape == second.shape == (2, 3)


def test_tables_need_whole_rows():
    with pytest.raises(InputError, match=r"f: 2 texts but 1 labels"):
        Table((["a", "b"],), ["x"], source="f")
    with pytest.raises(InputError, match=r"3 columns of text"):
        Table((["a"], ["b"], ["c"]), ["x"])
    with pytest.raises(InputError, match=r"2 texts but 1 groups"):
        Table((["a", "b"],), ["x", "y"], groups=["g"])


def test_rows_keep_their_places():
    lined = Table((["a", "b", "c"],), list("xyz"), list("ghi"), "f.tsv", [2, 4, 5])
    taken = lined.take([2, 1]).take([1])
    assert (taken.place(0), taken.texts[0], taken.labels, taken.groups) == ("f.tsv:4", ["b"], ["y"], ["h"])
    plain = Table((["a", "b", "c"],), list("xyz"))
    assert plain.place(2) == plain.take([2, 1]).take([0]).place(0) == "the data, row 3"
