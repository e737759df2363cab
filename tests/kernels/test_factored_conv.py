"""The factored convolution computes what the real kernel defines, keeps the input and the components alone, and is planned."""

import pytest
import torch

from tests.errors import raises
from zoo.algebras import algebra
from zoo.kernels import Geometry, Work, axis_layout, real_matrix
from zoo.kernels.factored_conv import FactoredConv, factored_conv
from zoo.kernels.factors import Factors, factorize
from zoo.kernels.plan import plan
from zoo.layers import Conv1d, Conv2d, set_kernel

GEOMETRIES = [
    Geometry((1, 1), (1, 1), (1, 1)),
    Geometry((2, 1), (0, 2), (1, 1)),
    Geometry((1, 2), (2, 0), (2, 1)),
    Geometry((2,), (1,), (2,)),
]


def given(spec, axes):
    torch.manual_seed(0)
    structure = algebra(spec).double().structure
    n = len(structure)
    x = torch.randn(2, 2 * n, *(7, 6)[:axes], dtype=torch.float64, requires_grad=True)
    w = torch.randn(n, 3, 2, *(3, 2)[:axes], dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3 * n, dtype=torch.float64, requires_grad=True)
    return structure, Factors(*(t.double() for t in factorize(structure))), x, w, bias


def definition(structure, x, w, bias, geometry):
    n = len(structure)
    matrix = real_matrix(structure, w, axis_layout(3 * n, n), axis_layout(2 * n, n))
    return torch.convolution(x, matrix, bias, *geometry, False, [0] * (x.dim() - 2), 1)


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("spec", ["complex", "quaternion", "octonion", "clifford(p=2,q=0)"])
def test_values_and_gradients_are_those_of_the_real_kernel(spec, geometry):
    structure, factors, x, w, bias = given(spec, len(geometry.stride))
    found, expected = factored_conv(x, w, factors, geometry, bias), definition(structure, x, w, bias, geometry)
    torch.testing.assert_close(found, expected)
    g = torch.randn_like(expected).transpose(1, -1).contiguous().transpose(1, -1)  # a gradient in another order of memory
    wanted = torch.autograd.grad(expected, (x, w, bias), g)
    for one, other in zip(torch.autograd.grad(found, (x, w, bias), g), wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("needed", [0, 1, 2])
def test_each_gradient_is_right_alone_and_can_be_differentiated_again(needed):
    structure, factors, *tensors = given("quaternion", 2)
    tensors = [t.detach().requires_grad_(i == needed) for i, t in enumerate(tensors)]
    product = lambda *given: factored_conv(given[0], given[1], factors, GEOMETRIES[1], given[2])  # noqa: E731
    found, wanted = (
        torch.autograd.grad(y.sin().sum(), tensors[needed], create_graph=True)[0]
        for y in (product(*tensors), definition(structure, *tensors[:2], tensors[2], GEOMETRIES[1]))
    )
    torch.testing.assert_close(found, wanted)
    again, expected = (torch.autograd.grad(g.square().sum(), tensors[needed])[0] for g in (found, wanted))
    torch.testing.assert_close(again, expected)


def test_only_the_input_and_the_components_are_kept_for_the_backward_pass():
    _, factors, x, w, bias = given("quaternion", 2)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        factored_conv(x, w, factors, GEOMETRIES[0], bias)
    assert sum(t.numel() for t in kept) == x.numel() + w.numel() + sum(t.numel() for t in factors)


@pytest.fixture
def calls(monkeypatch):
    """The factored convolutions that layers compute."""
    found = []
    apply = FactoredConv.apply
    monkeypatch.setattr(FactoredConv, "apply", lambda *args: found.append(args) or apply(*args))
    return found


OPTIONS = [
    ({"padding": 1, "stride": 2}, True),
    ({"padding": "same"}, False),
    ({"padding": 1, "padding_mode": "circular"}, False),
    ({"groups": 2}, False),
    ({"blocks": (1, 2)}, False),
]


@pytest.mark.parametrize(("options", "used"), OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [Conv1d, Conv2d])
def test_a_layer_that_is_asked_to_uses_it_where_it_can(kind, options, used, calls):
    layer = kind(algebra("quaternion"), 16, 24, 3, **options).double()
    x = torch.randn(2, 16, *[8] * len(layer.kernel_size), dtype=torch.float64)
    expected = layer(x)
    assert not calls
    set_kernel(layer.modules(), "factored")
    torch.testing.assert_close(layer(x), expected)
    assert bool(calls) == used


def test_what_it_cannot_do_is_left_to_the_real_kernel(calls):
    layer = Conv2d(algebra("quaternion"), 16, 10, 3)
    set_kernel(layer, "factored")
    assert layer.weight_module.kernel == "factored"
    assert layer(torch.randn(2, 16, 8, 8)).shape == (2, 10, 6, 6)  # 4 does not divide 10
    layer = Conv2d(algebra("quaternion"), 16, 24, 3)
    set_kernel(layer.modules(), "factored")
    assert layer(torch.randn(16, 8, 8)).shape == (24, 6, 6)
    layer(torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last))
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(2, 16, 8, 8)).dtype == torch.bfloat16
        grouped = Conv2d(algebra("quaternion"), 16, 24, 3, groups=2)
        assert grouped(torch.randn(2, 16, 8, 8)).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="channels"):
        layer(torch.randn(2, 12, 8, 8))
    assert not calls
    with raises("unknown", "kernel='fft'"):
        set_kernel(layer.modules(), "fft")


@pytest.mark.parametrize(
    ("n", "rank", "channels", "places", "area", "expected"),
    [  # measured on 2 cores beside the real layer: 0.80, 0.63, 1.3, 1.6; 1.3, 0.74; 1.1
        (4, 8, 256, 16 * 14 * 14, 9, True),
        (4, 8, 512, 16 * 7 * 7, 9, True),
        (4, 8, 64, 32 * 16 * 16, 9, False),
        (4, 8, 256, 16 * 14 * 14, 1, False),
        (8, 30, 256, 16 * 14 * 14, 9, False),
        (8, 30, 512, 16 * 7 * 7, 9, True),
        (2, 3, 256, 16 * 14 * 14, 9, False),
    ],
)
def test_it_is_planned_where_it_was_faster(n, rank, channels, places, area, expected):
    axis = axis_layout(channels, n)
    work = Work(places, axis, axis, n, rank, True, threads=2, convolution=True, area=area, inputs=places)
    assert (plan(work).name == "factored") == expected
    if expected:
        assert plan(work._replace(training=False)).name == "factored"  # measured: 0.74, 0.69, 0.71
    assert plan(work._replace(rank=None)).name == "block"


def test_a_layer_asks_the_plan_with_its_positions(monkeypatch, calls):
    asked, cost = [], FactoredConv.cost
    monkeypatch.setattr(FactoredConv, "cost", lambda self, work: asked.append(work) or cost(self, work) * 0)
    layer = Conv2d(algebra("quaternion"), 16, 24, 3, stride=2, padding=1, dilation=2)
    y = layer(torch.randn(2, 16, 9, 12))
    (work,) = asked
    assert (work.rows, work.inputs, work.area, work.training) == (2 * y[0, 0].numel(), 2 * 9 * 12, 9, True)
    assert len(calls) == 1
