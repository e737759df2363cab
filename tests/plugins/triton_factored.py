"""Tests of the factored products in Triton's interpreter, in float32, see triton_interpreted.py."""

import copy

import pytest
import torch
from torch.nn import functional as F
from zoo_gpu import factored as module

import zoo
from tests.errors import raises
from zoo.kernels import real_matrix
from zoo.nn import Linear, batch_matrices, set_kernel

LAYOUTS = [(16, 24, (1, 1)), (10, 7, (1, 1)), (42, 38, (3, 2)), (70, 72, (1, 1))]


def random_product(n):
    """A product of few pairs of basis elements, so that there are fewer than n^2 multiplications."""
    pairs = torch.randperm(n * n)[: min(n * n - 1, module.MOST_TERMS // n)]
    structure = torch.zeros(n * n, n).index_copy_(0, pairs, torch.randn(len(pairs), n))
    return zoo.Algebra(structure.view(n, n, n))


PRODUCTS = {f"random, n={n}": lambda n=n: random_product(n) for n in range(2, 9)}
PRODUCTS |= {spec: lambda spec=spec: zoo.algebra(spec) for spec in ("complex", "quaternion", "octonion", "phm(n=4, rank=9)")}
PRODUCTS["pure"] = lambda: zoo.Algebra(zoo.algebra("quaternion").structure, left=torch.eye(4)[1:])


@pytest.fixture
def launches(monkeypatch):
    """The factors of the launches, and whether they are transposed."""
    made, combination = [], module.combination
    monkeypatch.setattr(module, "combination", lambda *key: made.append(key) or combination(*key))
    return made


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def make_layer(product, inp, out, blocks=(1, 1), kernel="bmm"):
    layer = Linear(inp, out, algebra=PRODUCTS[product](), blocks=blocks)
    torch.nn.init.normal_(layer.bias)
    set_kernel(layer, kernel)
    return layer


def results(layer, x, g):
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], g.to(y.dtype))]


def definition(layer, x):
    weight = layer.weight_module
    return F.linear(x, real_matrix(weight.action(), weight.elements, layer.out, layer.inp), layer.bias)


def check(layer, x, bound=1e-6):
    """Compare values and gradients with the definition in float64."""
    exact, x64 = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    expected = definition(exact, x64)
    g = torch.randn_like(expected)
    wanted = [expected, *torch.autograd.grad(expected, [x64, *exact.parameters()], g)]
    for a, b in zip(results(layer, x, g), wanted, strict=True):
        assert a.shape == b.shape
        assert (a.double() - b).norm() <= bound * b.norm()


@pytest.mark.parametrize("kernel", ["bmm", "bmm_keep"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_values_and_gradients(product, kernel, launches):
    for inp, out, blocks in LAYOUTS:
        check(make_layer(product, inp, out, blocks, kernel), torch.randn(3, 5, inp, requires_grad=True))
    assert launches


def test_strides_and_expanded_gradients(launches):
    layer = make_layer("quaternion", 24, 20)
    wide = torch.randn(6, 7, 48)
    for x in (wide[..., :24], wide[..., ::2], wide[:, ::3, 24:], wide[:, :, :24].transpose(0, 1), wide[:0, :, :24]):
        check(layer, x.detach().requires_grad_())
    x = torch.randn(4, 24, requires_grad=True)
    actual, expected = (
        torch.autograd.grad(f(x).sum(), [x, *layer.parameters()]) for f in (layer, lambda x: definition(layer, x))
    )
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_combines_the_components_in_one_launch(dtype, launches):
    layer, x = make_layer("quaternion", 40, 24), torch.randn(9, 40, requires_grad=True)
    saved = []
    with (
        torch.autocast("cpu", dtype),
        torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t),
    ):
        y = layer(x)
    assert y.dtype == dtype
    assert len(launches) == 3
    assert {(t.dtype, t.numel()) for t in saved if t.numel() > 100} == {(dtype, x.numel()), (torch.float32, 4 * 10 * 6)}
    y.float().sum().backward()
    assert len(launches) == 8
    assert layer.components.grad.dtype == torch.float32
    check_rounded = definition(layer, x)
    assert (y - check_rounded).norm() <= 2e-2 * check_rounded.norm()


def test_second_derivatives():
    layer, x = make_layer("quaternion", 10, 7), torch.randn(3, 10, requires_grad=True)

    def second(f):
        inputs = [x, *layer.parameters()]
        first = torch.autograd.grad(f(x).sin().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), inputs)

    torch.testing.assert_close(second(layer), second(lambda x: definition(layer, x)), atol=1e-4, rtol=1e-4)
    set_kernel(layer, "bmm_keep")
    with raises("unsupported", "second derivatives"):
        second(layer)


def test_memory_outside_the_tensors_is_not_written():
    buffer, x = torch.full((3 * 5 * 4 + 64,), 9.0), torch.randn(2, 3, 5)
    module.combine("", x, torch.randn(4, 2), buffer[32:-32].view(4, 3, 5), False)
    assert (buffer[:32] == 9).all()
    assert (buffer[-32:] == 9).all()
    assert (buffer[32:-32] != 9).all()


@pytest.mark.parametrize(
    ("product", "dtype"), [("sedenion", torch.float32), ("phm-4", torch.float32), ("quaternion", torch.float64)]
)
def test_unsupported_products_are_left_to_the_matrix(product, dtype, launches):
    layer = Linear(32, 32, algebra=zoo.algebra(product)).to(dtype)
    set_kernel(layer, "bmm")
    x = torch.randn(3, 32, dtype=dtype)
    torch.testing.assert_close(layer(x), definition(layer, x))
    assert not launches


def test_old_devices_combine_by_torch(launches, monkeypatch):
    monkeypatch.setattr(module, "is_recent", lambda device: False)
    check(make_layer("octonion", 16, 24), torch.randn(5, 16, requires_grad=True))
    assert not launches


def test_a_network_assembles_only_the_matrices_of_other_layers(monkeypatch):
    monkeypatch.setattr("zoo.nn.weight.BATCHED", ("cpu",))
    algebra, sizes = zoo.algebra("quaternion"), []
    net = batch_matrices(torch.nn.Sequential(*(Linear(16, 16, algebra=algebra) for _ in range(3))))
    set_kernel(net[1], "bmm")
    monkeypatch.setattr(
        "zoo.nn.batching.matrices",
        lambda parts, dtype, made=zoo.kernels.matrices: sizes.append(len(parts)) or made(parts, dtype),
    )
    x = torch.randn(3, 16)
    y = net(x)
    y.sum().backward()
    assert sizes == [2]
    expected = x
    for layer in net:
        expected = definition(layer, expected)
    torch.testing.assert_close(y, expected)
