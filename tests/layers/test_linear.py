"""The linear layer against torch: real, complex, and its exact parameter counts."""

import pytest
import torch
from torch import nn

from zoo.algebras import Algebra, algebra, reals
from zoo.errors import InputError
from zoo.layers import Linear


def count(layer):
    return sum(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("bias", [True, False])
def test_over_the_reals_it_is_torchs(bias):
    ours, theirs = Linear(reals(), 10, 7, bias), nn.Linear(10, 7, bias)
    state = theirs.state_dict()
    ours.load_state_dict({"weight_module.components": state.pop("weight"), **state})
    assert ours.weight is ours.components
    x = torch.randn(3, 10, requires_grad=True)
    y, expected = ours(x), theirs(x)
    assert torch.equal(y, expected)
    y.square().sum().backward()
    mine, x.grad = x.grad, None
    expected.square().sum().backward()
    torch.testing.assert_close(mine, x.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_complex_is_torchs_complex():
    layer = Linear(algebra("complex"), 12, 8)
    w, x = torch.complex(*layer.components.detach()), torch.randn(5, 12)
    expected = torch.complex(*x.chunk(2, -1)) @ w.T
    bias = torch.randn(8)
    layer.bias.data = bias
    assert w.dtype == torch.complex64
    torch.testing.assert_close(layer(x), torch.cat([expected.real, expected.imag], -1) + bias)


def test_complex_gradient_is_torchs_complex_gradient():
    layer = Linear(algebra("complex"), 12, 8, bias=False).double()
    w = torch.complex(*layer.components.detach()).requires_grad_()
    x = torch.randn(5, 12, dtype=torch.float64)
    y = torch.complex(*x.chunk(2, -1)) @ w.T
    torch.cat([y.real, y.imag], -1).pow(3).sum().backward()
    layer(x).pow(3).sum().backward()
    torch.testing.assert_close(layer.components.grad, torch.stack([w.grad.real, w.grad.imag]))


@pytest.mark.parametrize(
    ("spec", "sizes", "expected"),
    [
        ("quaternion", (512, 2048), 512 * 2048 // 4 + 2048),
        ("phm(n=8)", (512, 2048), 512 * 2048 // 8 + 512 + 2048),
        ("real", (512, 2048), 512 * 2048 + 2048),
        ("octonion", (10, 7), 8 * 2 * 1 + 7),
        ("phm(n=8, learned=false)", (16, 8), 16 + 8),
    ],
)
def test_parameter_counts(spec, sizes, expected):
    assert count(Linear(algebra(spec), *sizes)) == expected


def test_a_shared_rule_is_counted_once():
    rule = algebra("phm(n=4, shared=true)")
    net = nn.Sequential(Linear(rule, 8, 8, bias=False), Linear(rule, 8, 8, bias=False))
    assert count(net) == 2 * 16 + 64
    apart = algebra("phm(n=4)")
    assert count(nn.Sequential(Linear(apart, 8, 8, bias=False), Linear(apart, 8, 8, bias=False))) == 2 * (16 + 64)


@pytest.mark.parametrize("spec", ["real", "complex", "quaternion", "octonion", "sedenion", "phm-3", "clifford(p=1,q=0)"])
def test_padded_weights_take_no_gradient(spec):
    layer = Linear(algebra(spec), 10, 7)
    y = layer(torch.randn(4, 10))
    assert y.shape == (4, 7)
    y.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_weights_that_only_meet_padding_never_change():
    layer = Linear(
        algebra("octonion"), 9, 9
    )  # two places: the second has one real channel in each of the first four components
    layer(torch.randn(4, 9)).square().sum().backward()
    read = layer.components.grad != 0
    # w[o, c] meets output k and input j; at (1, 1) both have one real channel only in components 0 to 3.
    assert read[:, 0, 0].all()
    table = layer.algebra.structure
    real = (torch.arange(16).reshape(8, 2) < 9)[:, 1]
    reachable = table[:, real][:, :, real].abs().sum((1, 2)) > 0
    assert torch.equal(read[:, 1, 1], reachable)
    assert not reachable.all()


@pytest.mark.parametrize("blocks", [(3, 1), (1, 4), (0, 1)])
def test_blocks_divide_the_channels(blocks):
    with pytest.raises(InputError, match="do not split"):
        Linear(algebra("complex"), 10, 7, blocks=blocks)


def test_the_gradient_reaches_a_learned_rule():
    layer = Linear(algebra("phm-4"), 8, 8)
    layer(torch.randn(3, 8)).sum().backward()
    assert layer.algebra.structure.grad.abs().sum() > 0


def test_reset_draws_again_and_clears_the_bias():
    layer = Linear(algebra("quaternion"), 8, 8)
    before = layer.components.detach().clone()
    nn.init.ones_(layer.bias)
    layer.reset_parameters()
    assert not torch.equal(layer.components, before)
    assert layer.bias.abs().max() == 0


def test_meta_device():
    with torch.device("meta"):
        layer = Linear(reals(), 10, 7)
    assert layer.components.is_meta
    assert layer(torch.empty(3, 10, device="meta")).shape == (3, 7)


def test_repr_shows_sizes_and_blocks():
    assert "in_features=8, out_features=24, bias=True, blocks=(1, 3)" in repr(Linear(algebra("complex"), 8, 24, blocks=(1, 3)))
    assert "blocks" not in repr(Linear(algebra("complex"), 8, 24))
    assert "quaternion" in repr(Linear(algebra("quaternion"), 8, 24))


def test_a_stranger_without_a_spec_works():
    layer = Linear(Algebra(torch.randn(3, 3, 3)), 10, 7)
    assert layer(torch.randn(2, 10)).shape == (2, 7)


@pytest.mark.parametrize("rows", [0, 2, 64])
def test_an_input_of_another_width_is_refused_as_torch_does(rows):
    layer = Linear(algebra("quaternion"), 8, 4)
    with pytest.raises(RuntimeError, match=f"shapes cannot be multiplied .{rows}x16 and 8x4."):
        layer(torch.randn(rows, 16))
