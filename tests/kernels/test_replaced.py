"""Layers whose bias, components or product is replaced compute with the new one, or raise one clear error."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo.errors import InputError
from zoo.nn import LSTM, Conv2d, Embedding, Linear, set_kernel

KERNELS = ["auto", "block", "factored", "thin", "fused"]
ROWS = [1, 100]


@pytest.fixture(params=[False, True], ids=["python", "compiled"])
def compiled(request):
    """Run a test with the Python kernels and with the compiled ones."""
    if request.param:
        request.getfixturevalue("library")
    return request.param


def make(kernel, compiled):
    torch.manual_seed(0)
    layer = Linear(128, 128, algebra=zoo.algebra("quaternion"))
    set_kernel(layer, "auto" if kernel == "fused" and not compiled else kernel)
    return layer


def result(function):
    """Return the value of a function, or the type of its error."""
    try:
        return function()
    except RuntimeError as error:
        return type(error)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(1,), (128,), (3,), (), (1, 128), (100, 128), (0,)], ids=str)
def test_a_bias_broadcasts_as_torchs_or_is_refused(shape, kernel, compiled):
    for rows in ROWS:
        layer, x = make(kernel, compiled), torch.randn(rows, 128)
        with torch.no_grad():
            layer(x)  # may bind a call for the first bias
        layer.bias = nn.Parameter(torch.randn(shape))
        expected = result(lambda x=x, layer=layer: F.linear(x, layer.weight_module(), layer.bias))
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                actual = result(lambda x=x, layer=layer: layer(x))
            assert type(actual) is type(expected)
            if isinstance(expected, torch.Tensor):
                torch.testing.assert_close(actual, expected.detach() if not grad else expected, rtol=1e-4, atol=1e-4)
        if isinstance(expected, torch.Tensor):
            gradients = [torch.autograd.grad(y.sin().sum(), layer.bias)[0] for y in (actual, expected)]
            torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-3)
    layer.bias = nn.Parameter(torch.randn(128, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="dtype"):
        layer(x)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", [(4, 8, 8), (3, 32, 32), (0, 32, 32), (4, 32, 0), (4, 64, 32), (4, 1024)], ids=str)
def test_components_that_do_not_fit_are_refused(shape, kernel, compiled):
    for rows in ROWS:
        for grad in (False, True):
            layer, x = make(kernel, compiled), torch.randn(rows, 128)
            with torch.set_grad_enabled(grad):
                layer(x)
                layer.components.data = torch.ones(shape)
                with pytest.raises((RuntimeError, InputError), match=r"components|expected"):
                    layer(x)
                layer.weight_module.components = nn.Parameter(torch.ones(shape))
                with raises("mismatch", f"components {list(shape)}"):
                    layer(x)


LAYERS = {
    "linear": (lambda a: Linear(128, 128, algebra=a), torch.randn(1, 128)),
    "linear, many rows": (lambda a: Linear(128, 128, algebra=a), torch.randn(100, 128)),
    "conv": (lambda a: Conv2d(16, 16, 3, algebra=a), torch.randn(2, 16, 5, 5)),
    "embedding": (lambda a: Embedding(12, 16, algebra=a), torch.arange(12)),
    "lstm": (lambda a: LSTM(8, 8, algebra=a), torch.randn(2, 3, 8)),
}


def weights(net):
    return [module for module in net.modules() if isinstance(module, zoo.nn.weight.Weight)]


def output(net, x):
    y = net(x)
    return y[0] if isinstance(y, tuple) else y


REPLACED = [
    ("quaternion", "clifford(p=1,q=1)"),
    ("quaternion", "phm-4"),
    ("phm(n=4, rank=9)", "phm-4"),
    ("phm-4", "quaternion"),
]


@pytest.mark.parametrize(("before", "after"), REPLACED)
@pytest.mark.parametrize("name", LAYERS)
def test_a_replaced_algebra_gives_its_value(name, before, after, compiled):
    build, x = LAYERS[name]
    torch.manual_seed(0)
    net, twin = build(zoo.algebra(before)), build(zoo.algebra(after))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            output(net, x)
    for weight, other in zip(weights(net), weights(twin), strict=True):
        weight.algebra = other.algebra
    twin.load_state_dict(net.state_dict(), strict=False)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(output(net, x), output(twin, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", ["quaternion", "phm-4", "real"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_replaced_structure_gives_its_value(name, spec, compiled):
    build, x = LAYERS[name]
    torch.manual_seed(0)
    net = build(zoo.algebra(spec))
    n = weights(net)[0].algebra.n
    structure = torch.randn(n, n, n)
    twin = build(zoo.Algebra(structure))
    with torch.no_grad():
        output(net, x)
        for weight in weights(net):
            weight.algebra.structure = nn.Parameter(structure) if spec == "phm-4" else structure
        twin.load_state_dict(net.state_dict(), strict=False)
        torch.testing.assert_close(output(net, x), output(twin, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LAYERS)
def test_a_product_of_another_dimension_is_refused(name, compiled):
    build, x = LAYERS[name]
    for spec, other in (("quaternion", "octonion"), ("quaternion", "real"), ("phm-4", "phm-2"), ("real", "complex")):
        net = build(zoo.algebra(spec))
        output(net, x)
        for weight in weights(net):
            weight.algebra = zoo.algebra(other)
        with raises("mismatch", f"n={zoo.algebra(other).n}"):
            output(net, x)
    learned = build(zoo.algebra("phm-4"))
    for weight in weights(learned):
        weight.algebra.structure = nn.Parameter(torch.randn(3, 3, 3))
    with raises("mismatch", "n=3"):
        output(learned, x)
    with raises("invalid", "n=4", "n=3"):
        weights(build(zoo.algebra("quaternion")))[0].algebra.structure = torch.randn(3, 3, 3)


def test_another_thread_cannot_store_a_constant_of_the_old_product():
    """A constant that is derived while the product is replaced is not found afterwards."""

    class Replaced(zoo.Algebra):
        def _to_structure(self, stored):
            if torch.equal(stored, old):
                self.structure = new  # as another thread would
            return stored

    old, new = torch.randn(2, 4, 4, 4)
    product, like = Replaced(old), torch.empty(0, dtype=torch.float64)
    assert torch.equal(product.table(like), old.double())
    assert torch.equal(product.table(like), new.double())
