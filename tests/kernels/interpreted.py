"""Tests of the Triton kernel in its interpreter; test_triton runs them in a process with TRITON_INTERPRET=1."""

import copy

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.errors import raises
from tests.kernels.test_products import definition, make_case
from zoo.algebras import Algebra
from zoo.kernels import triton_linear as module
from zoo.kernels.triton_linear import constants, triton_linear
from zoo.layers import Linear, set_kernel

SIZES = [((24, 1), (72, 1)), ((10, 1), (7, 1)), ((15, 3), (10, 2))]


def exact_results(structure, x, w, bias, out, inp, g):
    """Return the value and the gradients of the definition in float64."""
    exact = [t.detach().double().requires_grad_() for t in (x, w, bias)]
    y = definition(structure.double(), *exact, out, inp)
    return y, *torch.autograd.grad(y, exact, g.double())


def assert_near(actual, expected, bound):
    for a, b in zip(actual, expected, strict=True):
        assert a.shape == b.shape
        if a.numel():
            assert (a.double() - b).abs().max() <= bound * b.abs().max()


@pytest.mark.parametrize(
    ("spec", "sizes", "rows", "dtype", "bound"),
    [
        *(("quaternion", sizes, (67,), torch.float32, 1e-6) for sizes in SIZES),
        *(("complex", SIZES[1], rows, torch.float32, 1e-6) for rows in ((0,), (1,), (3, 5))),
        ("octonion", SIZES[1], (9,), torch.float32, 1e-6),
        ("phm(n=3)", SIZES[2], (5,), torch.float32, 1e-6),
        # An operand is rounded once more than by the definition, and no sum is: 2^-8 and 2^-11, over a few numbers.
        ("quaternion", SIZES[0], (67,), torch.bfloat16, 3e-2),
        ("quaternion", SIZES[2], (9,), torch.bfloat16, 3e-2),
        ("complex", SIZES[0], (67,), torch.float16, 3e-3),
    ],
    ids=str,
)
def test_values_and_gradients_equal_the_real_matrix(spec, sizes, rows, dtype, bound):
    structure, factors, x, w, bias, out, inp = make_case(spec, *sizes, rows, dtype)
    y = triton_linear(x, w, constants(factors), out, inp, bias)
    g = torch.randn_like(y)
    actual = torch.autograd.grad(y, (x, w, bias), g)
    assert {t.dtype for t in (y, *actual)} == {dtype}
    assert_near((y, *actual), exact_results(structure, x, w, bias, out, inp, g), bound)


def test_weight_gradient_in_shares(monkeypatch):
    monkeypatch.setattr(module, "FEWEST_ROWS", 40)
    structure, factors, x, w, bias, out, inp = make_case("quaternion", (12, 1), (8, 1), (201,), torch.float32)
    y = triton_linear(x, w, constants(factors), out, inp, bias)
    g = torch.randn_like(y)
    assert_near((y, *torch.autograd.grad(y, (x, w, bias), g)), exact_results(structure, x, w, bias, out, inp, g), 1e-6)


def test_non_contiguous_inputs_and_gradients():
    structure, factors, _, w, bias, out, inp = make_case("quaternion", (12, 1), (8, 1), (3,), torch.float32)
    for x in (
        torch.randn(5, 24)[:, ::2],
        torch.randn(12, 5).T,
        torch.randn(1, 12).expand(5, 12),
        torch.randn(9, 30)[::2, 7:19],
    ):
        x = x.detach().requires_grad_()
        y = triton_linear(x, w, constants(factors), out, inp, bias)
        g = torch.randn(8, 5).T
        assert_near((y, *torch.autograd.grad(y, (x, w, bias), g)), exact_results(structure, x, w, bias, out, inp, g), 1e-6)
    one = torch.autograd.grad(triton_linear(x, w, constants(factors), out, inp, bias).sum(), (x, w, bias))
    assert_near(one, exact_results(structure, x, w, bias, out, inp, torch.ones(5, 8))[1:], 1e-6)


@pytest.mark.parametrize("needed", range(3))
def test_single_gradients_and_second_derivatives(needed):
    structure, factors, x, w, bias, out, inp = make_case("complex", (6, 1), (5, 1), (3,), torch.float32, grad=False)
    tensors = [x, w, bias]
    tensors[needed].requires_grad_()
    actual = triton_linear(*tensors[:2], constants(factors), out, inp, tensors[2]).sin().sum()
    expected = definition(structure, *tensors, out, inp).sin().sum()
    pairs = [torch.autograd.grad(y, tensors[needed], create_graph=True)[0] for y in (actual, expected)]
    torch.testing.assert_close(*pairs)
    torch.testing.assert_close(torch.autograd.grad(actual, tensors[needed], retain_graph=True)[0], pairs[1])
    torch.testing.assert_close(*(torch.autograd.grad(g.sin().sum(), tensors[needed])[0] for g in pairs))


def test_only_input_and_components_are_saved_for_backward():
    _, factors, x, w, bias, out, inp = make_case("quaternion", (8, 1), (8, 1), (4,), torch.float32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        triton_linear(x, w, constants(factors), out, inp, bias)
    assert sorted(t.numel() for t in saved) == sorted((x.numel(), w.numel()))


def test_float64_is_not_supported():
    _, factors, x, w, bias, out, inp = make_case("complex", (6, 1), (5, 1), (3,))
    with raises("invalid", "torch.float64"):
        triton_linear(x, w, constants(factors), out, inp, bias)


@pytest.fixture
def called(monkeypatch):
    types = []
    wrapper = lambda x, *args: types.append(x.dtype) or triton_linear(x, *args)  # noqa: E731
    monkeypatch.setattr(module, "triton_linear", wrapper)
    return types


def test_layers_use_the_kernel_where_supported(called):
    torch.manual_seed(0)
    one, x = Linear(zoo.algebra("quaternion"), 12, 8), torch.randn(3, 5, 12)
    matrix, bias = one.weight.detach(), one.bias.detach()
    set_kernel([one.weight_module], "triton")
    torch.testing.assert_close(one(x), F.linear(x, matrix, bias))
    with torch.no_grad():
        torch.testing.assert_close(copy.deepcopy(one).eval()(x), F.linear(x, matrix, bias))
    with torch.autocast("cpu", torch.bfloat16):
        y = one(x)
    torch.testing.assert_close(y.float(), F.linear(x, matrix, bias), atol=5e-2, rtol=5e-2)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert one.components.grad.dtype == torch.float32
    assert called == [torch.float32, torch.float32, torch.bfloat16]
    one.double()(x.double())
    torch.func.functional_call(one.float(), {"bias": bias}, x)
    torch.func.vmap(one)(x)
    learned = Linear(zoo.algebra("phm-4"), 12, 8)
    set_kernel([learned.weight_module], "triton")
    learned(x)
    with pytest.raises(RuntimeError, match="dtype"):
        one(x.bfloat16())
    assert called == [torch.float32, torch.float32, torch.bfloat16, torch.float32]  # of functional_call


def test_weights_from_a_subspace(called):
    structure = zoo.algebra("quaternion").structure
    one, x = Linear(Algebra(structure, left=torch.eye(4)[:3]), 12, 8), torch.randn(3, 12)
    expected = one(x)
    set_kernel([one.weight_module], "triton")
    torch.testing.assert_close(one(x), expected)
    assert called
