import pytest

from zoo.data.text import Table
from zoo.errors import InputError


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
    assert (taken.location(0), taken.texts[0], taken.labels, taken.groups) == ("f.tsv:4", ["b"], ["y"], ["h"])
    plain = Table((["a", "b", "c"],), list("xyz"))
    assert plain.location(2) == plain.take([2, 1]).take([0]).location(0) == "the data, row 3"
