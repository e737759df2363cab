"""Convolutions against torch over the reals; groups and padding over an algebra. The contract tests the definition."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.errors import raises
from zoo.algebras import algebra, reals
from zoo.layers import Conv1d, Conv2d

OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": 2, "dilation": 2, "bias": False},
    {"groups": 2, "padding": "same"},
    {"groups": 4, "stride": 2, "dilation": 2},
    {"padding": 1, "padding_mode": "circular"},
    {"padding": 1, "padding_mode": "reflect", "groups": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("ours", "theirs"), [(Conv1d, nn.Conv1d), (Conv2d, nn.Conv2d)])
def test_equals_torch_over_the_reals(ours, theirs, options):
    layer, torch_layer = ours(reals(), 8, 12, 3, **options), theirs(8, 12, 3, **options)
    layer.weight, layer.bias = torch_layer.weight, torch_layer.bias
    x = torch.randn(2, 8, *[9] * len(layer.kernel_size))
    assert torch.equal(layer(x), torch_layer(x))
    assert torch.equal(layer(x[0]), torch_layer(x[0]))


@pytest.mark.parametrize("options", [{"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2}], ids=str)
@pytest.mark.parametrize(("kind", "convolve"), [(Conv1d, F.conv1d), (Conv2d, F.conv2d)])
def test_complex_algebra_equals_torch_complex_numbers(kind, convolve, options):
    layer = kind(algebra("complex"), 12, 8, 3, bias=False, **options)
    x = torch.randn(2, 12, *[9] * len(layer.kernel_size))
    expected = convolve(torch.complex(*x.chunk(2, 1)), torch.complex(*layer.components.detach()), **options)
    torch.testing.assert_close(layer(x), torch.cat([expected.real, expected.imag], 1))


def test_wrong_number_of_channels_with_groups():
    layer = Conv1d(algebra("quaternion"), 10, 14, 3, groups=2)
    assert layer(torch.randn(10, 5)).shape == (14, 3)
    for channels in (8, 9, 11, 12):
        with pytest.raises(RuntimeError):
            layer(torch.randn(2, channels, 5))


@pytest.mark.parametrize(
    ("channels", "options", "value"),
    [
        ((8, 8), {"groups": 3}, "groups=3"),
        ((8, 8), {"groups": 0}, "groups=0"),
        ((8, 8), {"groups": 2, "blocks": (1, 2)}, "blocks=(1, 2)"),
        ((9, 8), {"blocks": (2, 1)}, "9 channels"),
    ],
)
def test_invalid_sizes(channels, options, value):
    with raises("unsupported" if "groups" in options and "blocks" in options else "invalid", value):
        Conv2d(algebra("complex"), *channels, 3, **options)


@pytest.mark.parametrize(("inp", "out", "groups"), [(64, 128, 1), (64, 128, 2), (144, 144, 8), (144, 144, 24)])
def test_output_variance_is_one_with_groups(inp, out, groups):
    # 36 elements are 5 5 5 5 5 5 5 1 or, of 24 groups, 2 for each of the first 18.
    torch.manual_seed(0)
    y = Conv2d(algebra("quaternion"), inp, out, 3, groups=groups)(torch.randn(16, inp, 8, 8))
    assert abs(y.var().item() - 1) < 0.05


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_last(groups):
    layer, x = Conv2d(algebra("quaternion"), 16, 24, 3, groups=groups), torch.randn(2, 16, 8, 8)
    expected = layer(x)
    before = layer.components.detach().clone()
    nn.Sequential(layer).to(memory_format=torch.channels_last)
    assert torch.equal(layer.components, before)
    y = layer(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    assert layer.components.grad.shape == before.shape
