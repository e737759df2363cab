"""The block, factored and thin kernels against the real matrix."""

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F

from zoo.algebras import Factors, algebra, factorize
from zoo.kernels import Part, axis_layout, matrix_by_product, real_matrix
from zoo.kernels.block import block_linear
from zoo.kernels.factored import factored_linear
from zoo.kernels.fused import thin_linear

ALGEBRAS = ["complex", "quaternion", "octonion", "clifford(p=2,q=0)", "phm(n=3)"]
SIZES = [((24, 1), (48, 1)), ((10, 1), (7, 1)), ((24, 3), (24, 2)), ((15, 3), (10, 2))]


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def make_case(spec, inp, out, rows, dtype=torch.float64, grad=True):
    torch.manual_seed(0)
    structure = algebra(spec).structure.detach().double()
    n = len(structure)
    inp, out = axis_layout(inp[0], n, inp[1]), axis_layout(out[0], n, out[1])
    factors = Factors(*(t.to(dtype, copy=True) for t in factorize(structure)))  # those of `factorize` are remembered
    x = torch.randn(*rows, inp.channels, dtype=dtype, requires_grad=grad)
    w = torch.randn(n, out.elements, inp.elements, dtype=dtype, requires_grad=grad)
    bias = torch.randn(out.channels, dtype=dtype, requires_grad=grad)
    return structure.to(dtype), factors, x, w, bias, out, inp


def definition(structure, x, w, bias, out, inp):
    return F.linear(x, real_matrix(structure, w, out, inp), bias)


@pytest.mark.parametrize(("rows", "small"), [((0,), 0), ((1,), 0), ((3, 5), 2**18), ((301,), 0)], ids=str)
@pytest.mark.parametrize(("inp", "out"), SIZES, ids=str)
@pytest.mark.parametrize("spec", ALGEBRAS)
def test_values_and_gradients_equal_the_real_matrix(spec, inp, out, rows, small, monkeypatch):
    structure, factors, x, w, bias, out, inp = make_case(spec, inp, out, rows)
    expected = definition(structure, x, w, bias, out, inp)
    g = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, (x, w, bias), g)
    monkeypatch.setattr("zoo.kernels.block.SMALL", small)
    monkeypatch.setattr("zoo.kernels.assembly.LARGE", 4 * out.n**2 * inp.elements)
    for y in (factored_linear(x, w, factors, out, inp, bias), block_linear(x, Part(w, structure, "", out, inp), bias)):
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(torch.autograd.grad(y, (x, w, bias), g), expected_grads)
    torch.testing.assert_close(thin_linear(x, w, structure, out, inp, bias), expected)


@pytest.mark.parametrize("kernel", [(), (3,), (3, 2)], ids=str)
@pytest.mark.parametrize(("inp", "out"), SIZES, ids=str)
@pytest.mark.parametrize("spec", ALGEBRAS)
def test_the_matrix_of_exported_graphs_is_the_real_matrix(spec, inp, out, kernel):
    structure, _, _, w, _, out, inp = make_case(spec, inp, out, (0,), grad=False)
    w = torch.randn(*w.shape, *kernel, dtype=w.dtype)
    for m in (len(w), len(w) - 1):  # weights in a subspace have fewer components
        expected = real_matrix(structure[:m], w[:m], out, inp)
        torch.testing.assert_close(matrix_by_product(structure[:m], w[:m], out, inp), expected)


def test_gradients_of_factors():
    _, factors, x, w, bias, out, inp = make_case("quaternion", (6, 1), (10, 1), (3,))
    factors = [t.requires_grad_() for t in factors]

    def product(x, w, bias, *factors):
        return factored_linear(x, w, Factors(*factors), out, inp, bias)

    assert torch.autograd.gradcheck(product, (x, w, bias, *factors))
    assert torch.autograd.gradgradcheck(product, (x, w, bias, *factors))


@pytest.mark.parametrize(("small", "large"), [(0, 20), (0, 1000), (1000, 1000)])
def test_second_derivatives_and_structure_gradient_of_block(small, large, monkeypatch):
    monkeypatch.setattr("zoo.kernels.block.SMALL", small)
    monkeypatch.setattr("zoo.kernels.assembly.LARGE", large)  # with less, in tiles
    structure, _, x, w, bias, out, inp = make_case("quaternion", (6, 1), (10, 1), (3,))

    def product(x, w, bias, structure):
        return block_linear(x, Part(w, structure, "", out, inp), bias)

    assert torch.autograd.gradcheck(product, (x, w, bias, structure.requires_grad_()))
    assert torch.autograd.gradgradcheck(product, (x, w, bias, structure))


@pytest.mark.parametrize("needed", range(6))
def test_single_gradients(needed):
    _, factors, x, w, bias, out, inp = make_case("quaternion", (8, 1), (12, 1), (70,), grad=False)
    tensors = [x, w, bias, *factors]
    tensors[needed].requires_grad_()
    y = factored_linear(x, w, Factors(*tensors[3:]), out, inp, bias)
    table = torch.einsum("ri,rj,rk->ijk", *tensors[3:])
    grads, expected_grads = (
        torch.autograd.grad(t.sin().sum(), tensors[needed])[0] for t in (y, definition(table, x, w, bias, out, inp))
    )
    torch.testing.assert_close(grads, expected_grads)


def test_non_contiguous_rows_and_expanded_gradients():
    structure, factors, x, w, bias, out, inp = make_case("quaternion", (24, 1), (8, 1), (4, 9))
    wide = torch.randn(4, 9, 48, dtype=torch.float64)
    for rows in (wide[..., :24], wide[..., ::2], wide[:, ::3, 24:]):
        expected = definition(structure, rows, w, bias, out, inp)
        torch.testing.assert_close(factored_linear(rows, w, factors, out, inp, bias), expected)
    y = factored_linear(x, w, factors, out, inp, bias).sum()
    expected = torch.autograd.grad(definition(structure, x, w, bias, out, inp).sum(), (x, w, bias))
    torch.testing.assert_close(torch.autograd.grad(y, (x, w, bias)), expected)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 2e-6), (torch.bfloat16, 4e-2)], ids=str)
@pytest.mark.parametrize("spec", ["complex", "octonion"])
def test_rounding_stays_small(spec, dtype, bound):
    # Relative to the largest entry, of 256 features: combinations add at most log2(n) roundings to those of the definition.
    structure, factors, x, w, bias, out, inp = make_case(spec, (256, 1), (256, 1), (512,), dtype)
    exact = [t.detach().double().requires_grad_() for t in (x, w, bias)]
    expected = definition(structure.double(), *exact, out, inp)
    g = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, exact, g)
    y = factored_linear(x, w, factors, out, inp, bias)
    grads = torch.autograd.grad(y, (x, w, bias), g.to(dtype))
    for a, b in zip((y, *grads), (expected, *expected_grads), strict=True):
        assert (a.double() - b).abs().max() < bound * b.abs().max()
    assert (thin_linear(x, w, structure, out, inp, bias).double() - expected).abs().max() < bound * expected.abs().max()


def test_only_input_and_components_are_saved_for_backward():
    _, factors, x, w, bias, out, inp = make_case("quaternion", (64, 1), (64, 1), (128,))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        factored_linear(x, w, factors, out, inp, bias)
    assert sum(t.numel() for t in saved) == x.numel() + w.numel() + sum(t.numel() for t in factors)


def test_peak_memory_of_block_backward():
    structure, _, x, w, _, out, inp = make_case("quaternion", (512, 1), (1024, 1), (2,), dtype=torch.float32)
    y, tracker = block_linear(x, Part(w, structure, "", out, inp)).sum(), MemTracker()
    with tracker:
        y.backward()
    matrix = 4 * 512 * 1024
    peak = next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]
    assert peak < 3 * matrix  # two of: the matrix, the same in parts, its gradient; and the components' gradient
