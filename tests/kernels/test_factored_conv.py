"""The factored convolution against the real kernel: values, gradients, saved tensors and planning."""

import pytest
import torch

from tests.errors import raises
from zoo.algebras import Factors, algebra
from zoo.kernels import Geometry, Work, axis_layout, real_matrix
from zoo.kernels.base import plan
from zoo.kernels.factored import FactoredConv, factored_conv
from zoo.nn import Conv2d, set_kernel

GEOMETRIES = [
    Geometry((1, 1), (1, 1), (1, 1)),
    Geometry((2, 1), (0, 2), (1, 1)),
    Geometry((1, 2), (2, 0), (2, 1)),
    Geometry((2,), (1,), (2,)),
]


@pytest.fixture(params=["torch", "compiled"])
def mixed_by(request):
    """Combine components with torch, and with the compiled operator."""
    if request.param == "compiled":
        request.getfixturevalue("library")


def make_case(n, axes, seed=0, elements=(2, 3), space=(7, 6)):
    """Return random factors of an algebra, and x, w and bias."""
    torch.manual_seed(seed)
    inp, out = elements
    factors = Factors(*(torch.randn(n + 3, n, dtype=torch.float64) for _ in range(3)))
    shapes = (2, inp * n, *space[:axes]), (n, out, inp, *(3, 2)[:axes]), (out * n,)
    return factors, *(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)


def definition(factors, x, w, bias, geometry):
    layouts = (axis_layout(factors[0].shape[1] * size, factors[0].shape[1]) for size in w.shape[1:3])
    matrix = real_matrix(torch.einsum("ri,rj,rk->ijk", *factors), w, *layouts)
    return torch.convolution(x, matrix, bias, *geometry, False, [0] * (x.dim() - 2), 1)


def check(factors, x, w, bias, geometry):
    y, expected = factored_conv(x, w, factors, geometry, bias), definition(factors, x, w, bias, geometry)
    torch.testing.assert_close(y, expected)
    assert y.is_contiguous(memory_format=torch.channels_last) or x.is_contiguous() or x.dim() == 3
    g = torch.randn_like(expected).transpose(1, -1).contiguous().transpose(1, -1)  # a gradient in another order of memory
    expected_grads = torch.autograd.grad(expected, (x, w, bias), g)
    torch.testing.assert_close(torch.autograd.grad(y, (x, w, bias), g), expected_grads)


@pytest.mark.usefixtures("mixed_by")
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("n", [2, 3, 8])
def test_values_and_gradients_equal_the_real_kernel(n, geometry):
    factors, x, w, bias = make_case(n, len(geometry.stride))
    check(factors, x, w, bias, geometry)
    check(factors, x.transpose(1, -1).contiguous().transpose(1, -1).detach().requires_grad_(), w, bias, geometry)


@pytest.mark.usefixtures("mixed_by")
@pytest.mark.parametrize("threads", [1, 3])
def test_images_are_convolved_in_chunks(threads, monkeypatch):
    factors, x, w, bias = make_case(4, 2, elements=(16, 17), space=(19, 33))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for images in (1, 2, 5):
            monkeypatch.setattr("zoo.kernels.factored._images", lambda *args, images=images: images)
            many = torch.cat([x, 2 * x, x.flip(0)]).detach().requires_grad_()
            check(factors, many, w, bias, GEOMETRIES[0])
    finally:
        torch.set_num_threads(before)
    none = x[:0].detach().requires_grad_()
    assert factored_conv(none, w, factors, GEOMETRIES[0], bias).shape == (0, 68, 19, 34)


@pytest.mark.usefixtures("mixed_by")
@pytest.mark.parametrize("needed", [0, 1, 2])
def test_single_gradients_and_second_derivatives(needed):
    factors, *tensors = make_case(4, 2)
    tensors = [t.detach().requires_grad_(i == needed) for i, t in enumerate(tensors)]
    first, expected_grads = (
        torch.autograd.grad(y.sin().sum(), tensors[needed], create_graph=True)[0]
        for y in (
            factored_conv(*tensors[:2], factors, GEOMETRIES[1], tensors[2]),
            definition(factors, *tensors, GEOMETRIES[1]),
        )
    )
    torch.testing.assert_close(first, expected_grads)
    again, expected = (torch.autograd.grad(g.square().sum(), tensors[needed])[0] for g in (first, expected_grads))
    torch.testing.assert_close(again, expected)


def test_only_input_and_components_are_saved_for_backward():
    factors, x, w, bias = make_case(4, 2)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        factored_conv(x, w, factors, GEOMETRIES[0], bias)
    assert sum(t.numel() for t in saved) == x.numel() + w.numel() + sum(t.numel() for t in factors)


@pytest.fixture
def calls(monkeypatch):
    """Record the calls of the factored convolution."""
    calls = []
    apply = FactoredConv.apply
    monkeypatch.setattr(FactoredConv, "apply", lambda *args: calls.append(args) or apply(*args))
    return calls


OPTIONS = [
    ({"padding": 1, "stride": 2}, True),
    ({"padding": "same"}, False),
    ({"padding": 1, "padding_mode": "circular"}, False),
    ({"groups": 2}, False),
    ({"blocks": (1, 2)}, False),
]


@pytest.mark.parametrize(("options", "used"), OPTIONS, ids=str)
def test_requested_kernel_is_used_where_supported(options, used, calls):
    layer = Conv2d(16, 24, 3, algebra=algebra("quaternion"), **options).double()
    x = torch.randn(2, 16, *[8] * len(layer.kernel_size), dtype=torch.float64)
    expected = layer(x)
    assert not calls
    set_kernel(layer.modules(), "factored")
    torch.testing.assert_close(layer(x), expected)
    assert bool(calls) == used


def test_real_kernel_is_the_fallback(calls):
    layer = Conv2d(16, 10, 3, algebra=algebra("quaternion"))
    set_kernel(layer, "factored")
    assert layer(torch.randn(2, 16, 8, 8)).shape == (2, 10, 6, 6)  # 4 does not divide 10
    layer = Conv2d(16, 24, 3, algebra=algebra("quaternion"))
    set_kernel(layer, "factored")
    assert layer(torch.randn(16, 8, 8)).shape == (24, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(2, 16, 8, 8)).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="channels"):
        layer(torch.randn(2, 12, 8, 8))
    assert not calls
    with raises("unknown", "kernel='fft'"):
        set_kernel(layer, "fft")


@pytest.mark.parametrize(
    ("n", "rank", "channels", "area", "stride", "expected"),
    [  # measured beside the real layer, see docs/kernels.md
        (4, 8, 64, 9, 1, False),
        (4, 8, 128, 9, 1, False),
        (4, 8, 192, 9, 1, True),
        (4, 8, 256, 9, 1, True),
        (4, 8, 256, 9, 2, False),
        (4, 8, 256, 1, 1, False),
        (8, 30, 128, 9, 1, False),
        (2, 3, 64, 9, 1, False),
        (2, 3, 256, 9, 1, False),
    ],
)
def test_planned_where_measured_to_be_faster(n, rank, channels, area, stride, expected, monkeypatch):
    monkeypatch.setattr("zoo.kernels.compiled._state", {"loaded": "fused.so"})
    axis = axis_layout(channels, n)
    work = Work(3136, axis, axis, n, rank, True, threads=2, convolution=True, area=area, inputs=3136 * stride**2)
    assert (plan(work).name == "factored") == expected == (plan(work._replace(training=False)).name == "factored")
    assert plan(work._replace(rank=0)).name == "block"
    monkeypatch.setattr("zoo.kernels.compiled._state", {"reason": "no compiler"})
    assert plan(work).name == "block"
