"""The linear layer against torch: real, complex and padded."""

import pytest
import torch
from torch import nn

from tests.errors import raises
from zoo.algebras import algebra, reals
from zoo.layers import Linear


@pytest.mark.parametrize("bias", [True, False])
def test_equals_torch_over_the_reals(bias):
    ours, theirs = Linear(reals(), 10, 7, bias), nn.Linear(10, 7, bias)
    state = theirs.state_dict()
    ours.load_state_dict({"weight_module.components": state.pop("weight"), **state})
    x = torch.randn(3, 10, requires_grad=True)
    results = [(y, *torch.autograd.grad(y.square().sum(), (x, layer.weight))) for layer in (ours, theirs) for y in [layer(x)]]
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(*results)


def test_complex_algebra_equals_torch_complex_numbers():
    layer, x = Linear(algebra("complex"), 12, 8).double(), torch.randn(5, 12, dtype=torch.float64)
    nn.init.normal_(layer.bias)
    w = torch.complex(*layer.components.detach()).requires_grad_()
    y = torch.complex(*x.chunk(2, -1)) @ w.T
    expected = torch.cat([y.real, y.imag], -1) + layer.bias.detach()
    torch.testing.assert_close(layer(x), expected)
    expected.pow(3).sum().backward()
    layer(x).pow(3).sum().backward()
    torch.testing.assert_close(layer.components.grad, torch.stack([w.grad.real, w.grad.imag]))


def test_weights_of_padding_receive_no_gradient():
    layer = Linear(algebra("octonion"), 9, 9)  # of the second element, four components are real channels
    layer(torch.randn(4, 9)).square().sum().backward()
    read = layer.components.grad != 0
    assert read[:, 0, 0].all()
    real = (torch.arange(16).reshape(8, 2) < 9)[:, 1]
    reachable = layer.algebra.structure[:, real][:, :, real].abs().sum((1, 2)) > 0
    assert torch.equal(read[:, 1, 1], reachable)
    assert not reachable.all()


@pytest.mark.parametrize("blocks", [(3, 1), (1, 4), (0, 1)])
def test_blocks_must_divide_the_channels(blocks):
    with raises("invalid", "blocks"):
        Linear(algebra("complex"), 10, 7, blocks=blocks)


def test_reset_parameters():
    layer = Linear(algebra("quaternion"), 8, 8)
    before = layer.components.detach().clone()
    nn.init.ones_(layer.bias)
    layer.reset_parameters()
    assert not torch.equal(layer.components, before)
    assert layer.bias.abs().max() == 0
