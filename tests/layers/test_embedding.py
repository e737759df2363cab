"""The embedding against torch's: padding, variance and invalid indices. The contract tests the definition."""

import pytest
import torch
from torch import nn

from tests.errors import raises
from zoo.algebras import algebra, reals
from zoo.layers import Embedding, Layers
from zoo.layers.weight import INITS


def test_equals_torch_over_the_reals():
    ours, theirs = Embedding(reals(), 11, 6), nn.Embedding(11, 6)
    ours.components.data = theirs.weight.detach().clone()
    words = torch.tensor([[3, 0, 10], [3, 3, 7]])
    assert torch.equal(ours(words), theirs(words))
    for table in (ours, theirs):
        table(words).square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def prune(table):
    nn.utils.prune.l1_unstructured(table.weight_module, "components", 0.1)


@pytest.mark.parametrize("change", [nn.utils.parametrizations.weight_norm, prune])
def test_padding_stays_zero_with_parametrizations(change):
    table = Embedding(algebra("quaternion"), 10, 6, padding_idx=0)
    change(table)
    y = table(torch.tensor([0, 3]))
    assert y[0].abs().max() == 0 < y[1].abs().max()


def test_look_up_of_any_shape_ignores_autocast():
    table = Embedding(algebra("phm(n=4, rank=6)"), 11, 10)
    for index in (torch.tensor(3), torch.zeros(2, 3, 4, dtype=torch.long), torch.zeros(0, 5, dtype=torch.int32)):
        with torch.autocast("cpu", torch.bfloat16):
            y = table(index)
        assert y.shape == (*index.shape, 10)
        assert y.dtype == torch.float32


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("scope", ["all", "all+embed"])
def test_table_has_unit_variance_with_every_initialization(init, scope):
    torch.manual_seed(0)
    table = Layers("quaternion", scope=scope, init=init).embedding(400, 64)
    assert abs(table.weight.std() - 1) < 0.05


@pytest.mark.parametrize("padding_idx", [0, -3])
@pytest.mark.parametrize("spec", ["real", "quaternion", "phm-3"])
def test_padding_row_is_zero_without_gradient(spec, padding_idx):
    table, torchs = Embedding(algebra(spec), 10, 6, padding_idx), nn.Embedding(10, 6, padding_idx)
    assert table.padding_idx == torchs.padding_idx
    assert table.weight.eq(0).all(1).nonzero().flatten().tolist() == [torchs.padding_idx]
    plain = Embedding(algebra(spec), 10, 6)
    plain.load_state_dict(table.state_dict())
    others = torch.arange(10) != table.padding_idx
    assert torch.equal(table.weight[others], plain.weight[others])
    assert torch.equal(table(torch.arange(10)), table.weight)
    table(torch.tensor([table.padding_idx])).sum().backward()
    assert table.components.grad.abs().max() == 0


@pytest.mark.parametrize("padding_idx", [10, -11])
def test_padding_idx_out_of_range(padding_idx):
    with raises("invalid", f"padding_idx={padding_idx}", "-10 to 9"):
        Embedding(algebra("quaternion"), 10, 6, padding_idx)


@pytest.mark.parametrize("word", [-1, 11, 1000])
def test_index_out_of_range(word):
    # With n = 4 and 11 rows there are 12 places: 11 is a place, but no word.
    with pytest.raises(IndexError):
        Embedding(algebra("quaternion"), 11, 8)(torch.tensor([0, word]))
