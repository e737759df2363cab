"""Layers use the planned or requested kernel, and the real matrix where it is required."""

import copy
import warnings

import pytest
import torch

import zoo
from zoo.kernels import real_matrix
from zoo.kernels.block import Block
from zoo.kernels.factored import Factored
from zoo.kernels.fused import Fused, Thin, is_available
from zoo.nn import Linear, kernel_choice
from zoo.nn.kernel_choice import set_kernel


@pytest.fixture
def called(monkeypatch):
    """Record the kernels that are called."""
    names = []
    for kernel in (Block, Factored, Fused, Thin):
        spy = lambda self, *args, apply=kernel.apply: names.append(self.name) or apply(self, *args)  # noqa: E731
        monkeypatch.setattr(kernel, "apply", spy)
    return names


def make_layer(spec="quaternion", inp=12, out=8, **options):
    torch.manual_seed(0)
    pure = zoo.Algebra(zoo.algebra("quaternion").structure, left=torch.eye(4)[1:])
    return Linear(inp, out, algebra=pure if spec == "pure quaternions" else zoo.algebra(spec), **options)


def with_kernel(kernel, *args, **options):
    layer = make_layer(*args, **options)
    set_kernel(layer.modules(), kernel)
    return layer


def reference(layer, x):
    weight = layer.weight_module
    return torch.nn.functional.linear(x, real_matrix(weight.action(), weight.elements, layer.out, layer.inp), layer.bias)


@pytest.mark.parametrize("spec", ["octonion", "phm-3", "phm(n=4, rank=9)", "pure quaternions", "real"])
@pytest.mark.parametrize("kernel", ["auto", "block", "factored", "thin"])
def test_every_kernel_equals_the_real_matrix(kernel, spec):
    layer = with_kernel(kernel, spec, 10, 14).double()
    x = torch.randn(3, 7, 10, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(reference(layer, x).sin().sum(), [x, *layer.parameters()])
    actual = torch.autograd.grad(layer(x).sin().sum(), [x, *layer.parameters()])
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)
    layer.eval()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), reference(layer, x))


@pytest.mark.parametrize(("kernel", "training"), [("factored", True), ("block", True), ("thin", False), ("factored", False)])
def test_requested_kernel_is_used(kernel, training, called):
    layer, x = make_layer().train(training), torch.randn(5, 12)
    with torch.set_grad_enabled(training):
        layer(x)
        set_kernel(layer, kernel)  # clears the plan
        called.clear()
        layer(x)
    assert called == [kernel]


def test_block_is_the_fallback(called):
    with_kernel("thin")(torch.randn(5, 12))
    with_kernel("factored", "phm-4")(torch.randn(5, 12))
    assert called == ["block", "block"]


def test_plan_is_cached_by_number_of_rows(monkeypatch):
    asked = []
    monkeypatch.setattr(kernel_choice, "plan", lambda work, name: asked.append(work.rows) or Block())
    layer = make_layer()
    for rows in (5, 5, 9, 5, 9):
        layer(torch.randn(rows, 12))
    assert asked == [5, 9]
    layer.double()(torch.randn(5, 12).double())
    assert asked == [5, 9, 5]


def test_large_products_in_training_are_factored_automatically(called):
    make_layer("quaternion", 2048, 2048)(torch.randn(2048, 2048))
    make_layer("quaternion", 16, 16)(torch.randn(8, 16))
    assert called == ["fused" if is_available() else "factored", "block"]


def compiled(layer, x):
    return torch.export.export(layer, (x,)).module()(x)


def traced(layer, x):
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit is deprecated, and still used
        return torch.jit.trace(layer.eval(), x, check_trace=False)(x)


def mapped(layer, x):
    return torch.func.vmap(layer)(x)


def in_bfloat16(layer, x):
    with torch.autocast("cpu", torch.bfloat16):
        return layer(x)


def forward_mode(layer, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch's own decompositions
        return torch.func.jvp(layer, (x,), (torch.ones_like(x),))[0]


def parametrized(layer, x):
    torch.nn.utils.parametrizations.spectral_norm(layer)
    return layer(x)


@pytest.mark.parametrize("use", [compiled, traced, mapped, in_bfloat16, forward_mode, parametrized], ids=lambda f: f.__name__)
def test_real_matrix_is_used_by_transformations(use, called):
    layer, x = with_kernel("factored"), torch.randn(5, 12)
    y = use(layer, x)
    assert called == []
    if use not in (parametrized, in_bfloat16):
        torch.testing.assert_close(y, reference(layer, x))


def test_copies_keep_the_requested_kernel():
    assert copy.deepcopy(with_kernel("factored")).weight_module.kernel == "factored"
