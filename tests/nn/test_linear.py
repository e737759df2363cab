"""Linear layers and convolutions against torch, and initialization: the variance for all algebras, the published moments."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.errors import raises
from zoo.algebras import algebra, reals
from zoo.conversion import fold
from zoo.nn import LSTM, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Linear
from zoo.nn.conv import ConvTranspose
from zoo.nn.weight import draw_components


@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_equal_torch_over_the_reals(bias):
    ours, theirs = Linear(10, 7, bias, algebra=reals()), nn.Linear(10, 7, bias)
    state = theirs.state_dict()
    ours.load_state_dict({"weight_module.components": state.pop("weight"), **state})
    x = torch.randn(3, 10, requires_grad=True)
    results = [(y, *torch.autograd.grad(y.square().sum(), (x, layer.weight))) for layer in (ours, theirs) for y in [layer(x)]]
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(*results)


def test_linear_layers_over_the_complex_algebra():
    layer, x = Linear(12, 8, algebra=algebra("complex")).double(), torch.randn(5, 12, dtype=torch.float64)
    nn.init.normal_(layer.bias)
    w = torch.complex(*layer.components.detach()).requires_grad_()
    y = torch.complex(*x.chunk(2, -1)) @ w.T
    expected = torch.cat([y.real, y.imag], -1) + layer.bias.detach()
    torch.testing.assert_close(layer(x), expected)
    expected.pow(3).sum().backward()
    layer(x).pow(3).sum().backward()
    torch.testing.assert_close(layer.components.grad, torch.stack([w.grad.real, w.grad.imag]))


def test_weights_of_padding_receive_no_gradient():
    layer = Linear(9, 9, algebra=algebra("octonion"))  # of the second element, four components are real channels
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
        Linear(10, 7, algebra=algebra("complex"), blocks=blocks)


def test_reset_parameters():
    layer = Linear(8, 8, algebra=algebra("quaternion"))
    before = layer.components.detach().clone()
    nn.init.ones_(layer.bias)
    layer.reset_parameters()
    assert not torch.equal(layer.components, before)
    assert layer.bias.abs().max() == 0


SPECS = ["real", "complex", "quaternion", "octonion", "sedenion", "clifford(p=2,q=0,r=1)", "phm-4"]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("inp", "out", "gain"), [(256, 1024, 1.0), (480, 720, 0.5)])
def test_variance_initialization_has_the_expected_std(spec, inp, out, gain):
    layer = Linear(inp, out, algebra=algebra(spec), gain=gain)
    table, n = layer.algebra.structure, layer.algebra.n
    std = gain / math.sqrt((inp / n) * table.square().sum().item() / n)
    assert abs(layer.components.std().item() / std - 1) < 0.03
    assert abs(layer.components.mean().item()) < 0.05 * std
    assert layer.bias.abs().max() == 0


@pytest.mark.parametrize("spec", SPECS)
def test_glorot_bounds_each_component(spec):
    layer = Linear(480, 240, algebra=algebra(spec), init="glorot")
    n = layer.algebra.n
    bound = math.sqrt(6 / (480 / n + 240 / n))
    assert 0.98 * bound < layer.components.abs().max() <= bound
    assert abs(layer.components.var().item() / (bound**2 / 3) - 1) < 0.05


@pytest.mark.parametrize(("spec", "n"), [("complex", 2), ("quaternion", 4), ("octonion", 8)])
def test_polar_modulus_is_chi_distributed(spec, n):
    inp, out = 512, 256
    layer = Linear(inp, out, algebra=algebra(spec), init="polar")
    scale = 1 / math.sqrt(2 * (inp + out) / n)
    r = layer.components.detach().double().norm(dim=0).flatten() / scale
    mean = math.sqrt(2) * math.gamma((n + 1) / 2) / math.gamma(n / 2)
    for power, moment in ((1, mean), (2, n), (4, n * (n + 2))):
        assert abs(r.pow(power).mean().item() / moment - 1) < 0.05, power


def test_polar_phase_and_axis_are_uniform():
    w = Linear(512, 512, algebra=algebra("quaternion"), init="polar").components.detach().double().flatten(1)
    cosine = w[0] / w.norm(dim=0)
    # The cosine of a uniform phase has the arcsine law: variance 1/2, fourth moment 3/8.
    assert abs(cosine.square().mean().item() - 1 / 2) < 0.02
    assert abs(cosine.pow(4).mean().item() - 3 / 8) < 0.02
    axis = w[1:] / w[1:].norm(dim=0)
    assert axis.mean(1).abs().max() < 0.03
    torch.testing.assert_close(axis @ axis.T / axis.shape[1], torch.eye(3, dtype=torch.float64) / 3, atol=0.02, rtol=0)
    assert Linear(64, 64, algebra=algebra("real"), init="polar").components.isfinite().all()


def test_zero_structure_initializes_zeros():
    w = torch.full((2, 3, 3), 7.0)
    draw_components(w, torch.zeros(2, 2, 2), 3, 3)
    assert w.abs().max() == 0


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
@pytest.mark.parametrize(("ours", "theirs"), [(Conv1d, nn.Conv1d), (Conv2d, nn.Conv2d), (Conv3d, nn.Conv3d)])
def test_equals_torch_over_the_reals(ours, theirs, options):
    layer, torch_layer = ours(8, 12, 3, algebra=reals(), **options), theirs(8, 12, 3, **options)
    layer.weight, layer.bias = torch_layer.weight, torch_layer.bias
    x = torch.randn(2, 8, *[9] * len(layer.kernel_size))
    assert torch.equal(layer(x), torch_layer(x))
    assert torch.equal(layer(x[0]), torch_layer(x[0]))


TRANSPOSED = [
    (ConvTranspose1d, nn.ConvTranspose1d),
    (ConvTranspose2d, nn.ConvTranspose2d),
    (ConvTranspose3d, nn.ConvTranspose3d),
]
TRANSPOSED_OPTIONS = [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2, "bias": False}, {"groups": 2}]


@pytest.mark.parametrize("options", TRANSPOSED_OPTIONS, ids=str)
@pytest.mark.parametrize(("ours", "theirs"), TRANSPOSED)
def test_transposed_convolutions_equal_torch_over_the_reals(ours, theirs, options):
    layer, torch_layer = ours(8, 12, 3, algebra=reals(), **options), theirs(8, 12, 3, **options)
    torch_layer.load_state_dict({"weight": layer.weight, **({} if layer.bias is None else {"bias": layer.bias})})
    x = torch.randn(2, 8, *[5] * len(layer.kernel_size))
    assert torch.equal(layer(x), torch_layer(x))
    assert torch.equal(layer(x[0]), torch_layer(x[0]))
    size = [12] * len(layer.kernel_size)
    if options.get("stride"):
        assert torch.equal(ours.forward(layer, x, output_size=[10] * len(size)), torch_layer(x, output_size=[10] * len(size)))
    with raises("invalid", "computed"):
        layer.weight = torch_layer.weight


@pytest.mark.parametrize("options", [{"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2}], ids=str)
@pytest.mark.parametrize(("kind", "convolve"), [(ConvTranspose1d, F.conv_transpose1d), (ConvTranspose2d, F.conv_transpose2d)])
def test_transposed_convolutions_over_the_complex_algebra(kind, convolve, options):
    layer = kind(12, 8, 3, algebra="complex", bias=False, **options)
    x, groups = torch.randn(2, 12, *[5] * len(layer.kernel_size)), options.get("groups", 1)
    w = torch.complex(*layer.components.detach()).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    expected = convolve(torch.complex(*x.chunk(2, 1)), w, **options)
    torch.testing.assert_close(layer(x), torch.cat([expected.real, expected.imag], 1))


@pytest.mark.parametrize("name", ["real", "quaternion"])
def test_a_changed_stride_or_dilation_applies(name):
    """As in torch, where networks for segmentation are made so from trained ones."""
    layer, x = Conv2d(8, 12, 3, stride=2, padding=1, algebra=name), torch.randn(2, 8, 9, 9)
    transposed, y = ConvTranspose2d(8, 12, 3, algebra=name), torch.randn(2, 8, 4, 4)
    layer.stride, layer.padding, layer.dilation, transposed.stride = (1, 1), (2, 2), (2, 2), (2, 2)
    for module in (layer, copy.deepcopy(layer), fold(layer)):
        torch.testing.assert_close(module(x), F.conv2d(x, layer.weight, layer.bias, 1, 2, 2))
    torch.testing.assert_close(transposed(y), F.conv_transpose2d(y, transposed.weight, transposed.bias, 2))
    assert "stride=(1, 1), padding=(2, 2), dilation=(2, 2)" in repr(layer)


@pytest.mark.parametrize("spec", ["quaternion", "phm-3"])
@pytest.mark.parametrize("kind", [Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d])
def test_initial_variance_of_convolutions(kind, spec):
    torch.manual_seed(0)
    options = {"stride": 2} if issubclass(kind, ConvTranspose) else {}
    layer = kind(48, 48, 4, algebra=spec, **options)
    y = layer(torch.randn(4, 48, *[9] * len(layer.kernel_size)))
    inside = y if kind is Conv3d else y[(slice(None), slice(None), *[slice(3, -3)] * len(layer.kernel_size))]
    assert abs(inside.var().item() - 1) < 0.2


@pytest.mark.parametrize("options", [{"stride": 2, "padding": 1}, {"dilation": 2}, {"groups": 2}], ids=str)
@pytest.mark.parametrize(("kind", "convolve"), [(Conv1d, F.conv1d), (Conv2d, F.conv2d), (Conv3d, F.conv3d)])
def test_complex_algebra_equals_torch_complex_numbers(kind, convolve, options):
    layer = kind(12, 8, 3, algebra="complex", bias=False, **options)
    x = torch.randn(2, 12, *[9] * len(layer.kernel_size))
    expected = convolve(torch.complex(*x.chunk(2, 1)), torch.complex(*layer.components.detach()), **options)
    torch.testing.assert_close(layer(x), torch.cat([expected.real, expected.imag], 1))


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
        Conv2d(*channels, 3, algebra=algebra("complex"), **options)


@pytest.mark.parametrize(("inp", "out", "groups"), [(64, 128, 1), (64, 128, 2), (144, 144, 8), (144, 144, 24)])
def test_output_variance_is_one_with_groups(inp, out, groups):
    # 36 elements are 5 5 5 5 5 5 5 1 or, of 24 groups, 2 for each of the first 18.
    torch.manual_seed(0)
    y = Conv2d(inp, out, 3, algebra=algebra("quaternion"), groups=groups)(torch.randn(16, inp, 8, 8))
    assert abs(y.var().item() - 1) < 0.05


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_last(groups):
    layer, x = Conv2d(16, 24, 3, algebra=algebra("quaternion"), groups=groups), torch.randn(2, 16, 8, 8)
    expected = layer(x)
    before = layer.components.detach().clone()
    nn.Sequential(layer).to(memory_format=torch.channels_last)
    assert torch.equal(layer.components, before)
    y = layer(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(y, expected)
    y.sum().backward()
    assert layer.components.grad.shape == before.shape


def test_layers_print_one_line():
    layer = Linear(16, 64, algebra="quaternion")
    assert repr(layer) == "Linear(in_features=16, out_features=64, bias=True, algebra=quaternion)"
    assert repr(Linear(8, 8, algebra=reals())) == "Linear(in_features=8, out_features=8, bias=True)"
    assert repr(layer.weight_module) == "Weight([4, 16, 4] -> [64, 16], algebra=quaternion)"
    for other in (Conv2d(8, 8, 3, algebra="phm-2"), ConvTranspose2d(8, 8, 3, algebra="phm-2"), LSTM(8, 8, algebra="phm-2")):
        assert "\n" not in repr(other)
        assert repr(other).endswith("algebra=phm-2)")
    assert repr(layer.weight).startswith("tensor(")
    nn.utils.parametrizations.weight_norm(layer)
    assert "_WeightNorm" in repr(layer)
