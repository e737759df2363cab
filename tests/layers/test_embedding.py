"""The embedding against torch's, and what n words share."""

import pytest
import torch
from torch import nn

from zoo.algebras import algebra, reals
from zoo.errors import InputError
from zoo.layers import Embedding, Layers
from zoo.layers.init import INITS


def test_over_the_reals_it_is_torchs():
    ours, theirs = Embedding(reals(), 11, 6), nn.Embedding(11, 6)
    ours.components.data = theirs.weight.detach().clone()
    words = torch.tensor([[3, 0, 10], [3, 3, 7]])
    y, expected = ours(words), theirs(words)
    assert torch.equal(y, expected)
    assert torch.equal(ours.weight, theirs.weight)
    y.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_words_of_a_family_differ_by_a_right_multiplication():
    product = algebra("quaternion")
    table = Embedding(product, 12, 8)  # words 2, 5, 8 and 11 share w_2
    first = table(torch.tensor(2))
    for j, word in enumerate((2, 5, 8, 11)):
        e = torch.eye(4)[j].repeat_interleave(2)
        torch.testing.assert_close(table(torch.tensor(word)), product(first, e))


@pytest.mark.parametrize("change", [nn.utils.parametrizations.weight_norm, lambda table: prune(table.weight_module)])
def test_a_padding_word_stays_zero_whatever_changes_the_matrix(change):
    table = Embedding(algebra("quaternion"), 10, 6, padding_idx=0)
    change(table)
    y = table(torch.tensor([0, 3]))
    assert y[0].abs().max() == 0 < y[1].abs().max()


def prune(weight):
    nn.utils.prune.l1_unstructured(weight, "components", 0.1)


def test_a_look_up_keeps_its_dtype_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert Embedding(algebra("quaternion"), 10, 6)(torch.tensor([3])).dtype == torch.float32


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("scope", ["all", "all+embed"])
def test_a_word_table_has_the_same_spread_by_every_initialisation(init, scope):
    torch.manual_seed(0)
    table = Layers("quaternion", scope=scope, init=init).embedding(400, 64)
    assert abs(table.weight.std() - 1) < 0.05


@pytest.mark.parametrize("spec", ["quaternion", "phm-3"])
def test_a_padding_word_is_zero_and_takes_no_gradient(spec):
    torch.manual_seed(0)
    table, plain = Embedding(algebra(spec), 10, 6, padding_idx=0), Embedding(algebra(spec), 10, 6)
    plain.load_state_dict(table.state_dict())
    assert table(torch.tensor([0, 0])).abs().max() == 0
    words = torch.tensor([4, 0, 7])
    torch.testing.assert_close(table(words)[::2], plain(words)[::2])
    table(torch.tensor([0])).sum().backward()
    assert table.components.grad.abs().max() == 0


@pytest.mark.parametrize("padding_idx", [0, 3, -1, -10])
@pytest.mark.parametrize("spec", ["real", "quaternion"])
def test_the_padding_row_is_torchs_and_zero_in_the_table(spec, padding_idx):
    table, torchs = Embedding(algebra(spec), 10, 6, padding_idx), nn.Embedding(10, 6, padding_idx)
    assert table.padding_idx == torchs.padding_idx
    zero = table.weight.eq(0).all(1)
    assert zero.nonzero().flatten().tolist() == [torchs.padding_idx]
    assert torch.equal(table(torch.arange(10)), table.weight)
    table.output_weight[table.padding_idx].sum().backward()
    assert table.components.grad.abs().max() == 0


@pytest.mark.parametrize("padding_idx", [10, -11, 1000])
def test_a_padding_row_outside_the_table_is_refused(padding_idx):
    with pytest.raises(InputError, match=f"^padding_idx={padding_idx}: must be from -10 to 9, for 10 embeddings$"):
        Embedding(algebra("quaternion"), 10, 6, padding_idx)


@pytest.mark.parametrize(("spec", "expected"), [("real", 1000 * 64), ("quaternion", 16000), ("phm(n=4)", 16000 + 64)])
def test_parameter_counts(spec, expected):
    assert sum(p.numel() for p in Embedding(algebra(spec), 1000, 64).parameters()) == expected


@pytest.mark.parametrize("spec", ["real", "complex", "quaternion", "octonion", "phm-4"])
def test_vectors_have_unit_variance(spec):
    torch.manual_seed(0)
    assert abs(Embedding(algebra(spec), 1024, 256).weight.var().item() - 1) < 0.05


def test_any_shape_of_index():
    table = Embedding(algebra("quaternion"), 11, 10)
    assert table(torch.tensor(3)).shape == (10,)
    assert table(torch.zeros(2, 3, 4, dtype=torch.long)).shape == (2, 3, 4, 10)
    assert table(torch.zeros(0, 5, dtype=torch.int32)).shape == (0, 5, 10)


@pytest.mark.parametrize("word", [-1, 11, 12, 1000])
def test_a_word_outside_the_table_is_refused(word):
    # With n = 4 and 11 rows there are 12 places: 11 is a place, but no word.
    with pytest.raises(IndexError):
        Embedding(algebra("quaternion"), 11, 8)(torch.tensor([0, word]))


def test_repr_shows_the_sizes():
    assert "(algebra)" in repr(Embedding(algebra("complex"), 5, 4, padding_idx=1))
    assert "5, 4, padding_idx=1" in repr(Embedding(algebra("complex"), 5, 4, padding_idx=1))
