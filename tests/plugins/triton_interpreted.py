"""Tests of the Triton kernel in its interpreter; test_zoo_gpu runs them in a process with TRITON_INTERPRET=1."""

import pytest
import torch
from torch.nn import functional as F
from zoo_gpu import triton_linear as module
from zoo_gpu.triton_linear import triton_linear

import zoo
from tests.kernels.test_products import definition, make_case
from zoo.nn import Linear, set_kernel

SIZES = [((24, 1), (72, 1)), ((10, 1), (7, 1)), ((15, 3), (10, 2))]


@pytest.mark.parametrize(
    ("spec", "sizes", "rows", "dtype", "bound"),
    [
        *(("quaternion", sizes, (67,), torch.float32, 1e-6) for sizes in SIZES),
        *(("complex", SIZES[1], rows, torch.float32, 1e-6) for rows in ((0,), (3, 5))),
        ("octonion", SIZES[1], (9,), torch.float32, 1e-6),
        # An operand is rounded once more than by the definition, and no sum is: 2^-8 and 2^-11, over a few numbers.
        ("quaternion", SIZES[2], (9,), torch.bfloat16, 3e-2),
        ("complex", SIZES[0], (67,), torch.float16, 3e-3),
    ],
    ids=str,
)
def test_values_and_gradients_equal_the_real_matrix(spec, sizes, rows, dtype, bound):
    structure, factors, x, w, bias, out, inp = make_case(spec, *sizes, rows, dtype)
    y = triton_linear(x, w, factors, out, inp, bias)
    g = torch.randn_like(y)
    exact = [t.detach().double().requires_grad_() for t in (x, w, bias)]
    expected = definition(structure.double(), *exact, out, inp)
    results = (y, *torch.autograd.grad(y, (x, w, bias), g)), (expected, *torch.autograd.grad(expected, exact, g.double()))
    for a, b in zip(*results, strict=True):
        assert (a.dtype, a.shape) == (dtype, b.shape)
        assert not a.numel() or (a.double() - b).abs().max() <= bound * b.abs().max()


@pytest.mark.parametrize("needed", range(3))
def test_single_gradients_and_second_derivatives(needed):
    structure, factors, x, w, bias, out, inp = make_case("complex", (6, 1), (5, 1), (3,), torch.float32, grad=False)
    tensors = [x, w, bias]
    tensors[needed].requires_grad_()
    actual = triton_linear(*tensors[:2], factors, out, inp, tensors[2]).sin().sum()
    expected = definition(structure, *tensors, out, inp).sin().sum()
    pairs = [torch.autograd.grad(y, tensors[needed], create_graph=True)[0] for y in (actual, expected)]
    torch.testing.assert_close(*pairs)
    torch.testing.assert_close(torch.autograd.grad(actual, tensors[needed], retain_graph=True)[0], pairs[1])
    torch.testing.assert_close(*(torch.autograd.grad(g.sin().sum(), tensors[needed])[0] for g in pairs))


def test_layers_use_the_kernel_where_supported(monkeypatch):
    called = []
    monkeypatch.setattr(module, "triton_linear", lambda x, *args: called.append(x.dtype) or triton_linear(x, *args))
    torch.manual_seed(0)
    layer, x = Linear(12, 8, algebra=zoo.algebra("quaternion")), torch.randn(3, 5, 12)
    expected = F.linear(x, layer.weight.detach(), layer.bias)
    set_kernel(layer, "triton")
    torch.testing.assert_close(layer(x), expected)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    torch.testing.assert_close(y.float(), expected, atol=5e-2, rtol=5e-2)
    y.sum().backward()
    assert (y.dtype, layer.components.grad.dtype) == (torch.bfloat16, torch.float32)
    torch.func.vmap(layer)(x)
    layer.double()(x.double())
    assert called == [torch.float32, torch.bfloat16]
