"""The plan chooses the kernel of the lowest cost; factors and their ranks; in-place operations around layers."""

import copy
import json
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import zoo
from benchmarks.speed import plan as measured
from tests.errors import raises
from zoo.algebras import algebra
from zoo.algebras.properties import factorize, hadamard_factors
from zoo.kernels import AxisLayout, Kernel, Work, axis_layout, block_linear, real_matrix
from zoo.kernels.base import SPEEDS, kernels, plan, real_cost
from zoo.nn import Layers, Linear, set_kernel
from zoo.registry import unregister

LOADED, MISSING = {"loaded": "fused.so"}, {"reason": "no compiler"}


def work(rows, size, n=4, rank=8, training=True, threads=2, prepared=False):
    return Work(rows, axis_layout(size, n), axis_layout(size, n), n, rank, training, prepared, threads)


@pytest.mark.parametrize(
    ("product", "name", "compiled"),
    [
        (work(4096, 2048), "factored", "fused"),
        (work(4096, 2048, rank=0), "block", "block"),
        (work(64, 64), "block", "block"),
        (work(0, 64), "block", "block"),
        (work(8192, 1024, 2, 3), "block", "fused"),
        (work(1, 64, training=False, prepared=True), "block", "block"),
        (work(1, 256, training=False, prepared=True), "block", "block"),
        (work(1, 1024, training=False, prepared=True), "thin", "thin"),
        (work(32, 1024, training=False, prepared=True), "block", "fused"),
        (work(1, 512, training=False), "thin", "thin"),
        (work(1, 1024, 8, 30, training=False), "thin", "thin"),
        (work(4096, 2048, training=False), "factored", "fused"),
    ],
)
def test_lowest_cost_is_chosen(product, name, compiled, monkeypatch):
    for state, expected in ((MISSING, name), (LOADED, compiled)):
        monkeypatch.setattr("zoo.kernels.compiled._state", state)
        assert plan(product).name == expected


@pytest.mark.parametrize("compiled", [False, True])
def test_costs_increase_with_work_and_decrease_with_caching(compiled, monkeypatch):
    monkeypatch.setattr("zoo.kernels.compiled._state", LOADED if compiled else MISSING)
    for kernel in kernels():
        few, many = (work(rows, 512, training=False) for rows in (512, 8192))
        if kernel.can(few) and kernel.cost(few) < math.inf:
            assert 0 < kernel.cost(few._replace(prepared=True)) <= kernel.cost(few) < kernel.cost(many)
    assert real_cost(few._replace(training=True)) == pytest.approx(3 * real_cost(few))


class Negated(Kernel):
    """A wrong kernel."""

    name = "negated"

    def can(self, work):
        return not work.convolution

    def cost(self, work):
        return 0.0

    def prepare(self, weight):
        return weight.components.clone()

    def apply(self, x, weight, bias, prepared=None, geometry=None):
        w = weight.components if prepared is None else prepared
        return -block_linear(x, weight._replace(components=w).part(), bias)


def test_registered_kernel():
    layer, x = Linear(8, 8, algebra=zoo.algebra("quaternion")), torch.randn(3, 8)
    expected = layer(x)
    zoo.register("kernels", "negated", Negated)
    try:
        set_kernel(layer, "auto")  # plan anew
        torch.testing.assert_close(layer(x), -expected)
        with torch.no_grad(), zoo.keep_matrices(layer):
            torch.testing.assert_close(layer(x), -expected)
            layer.components.zero_()
            with raises("conflict", "keep_matrices"):  # the kernel was prepared with the values of before
                layer(x)
    finally:
        unregister("kernels", "negated")
    with raises("unknown", "negated"):
        set_kernel(layer, "negated")


def test_kernel_that_fails_to_load_is_skipped():
    def broken():
        raise ImportError("no such library")

    zoo.register("kernels", "broken", broken)
    try:
        with pytest.warns(UserWarning, match="broken"):
            assert plan(work(64, 64)).name == "block"
    finally:
        unregister("kernels", "broken")


class Packed(nn.Module):
    def __init__(self, lstm, lengths):
        super().__init__()
        self.lstm, self.lengths = lstm, lengths

    def forward(self, x):
        return self.lstm(pack_padded_sequence(x, self.lengths, batch_first=True))


LAYERS = {
    "linear": (lambda make: make.linear(24, 20, role="ffn"), (6, 24)),
    "linear, blocks and padding": (lambda make: make.linear(21, 30, role="ffn", blocks=(1, 3), bias=False), (2, 3, 21)),
    "conv2d": (lambda make: make.conv2d(8, 16, 3, padding=1), (2, 8, 6, 6)),
    "conv2d, groups": (lambda make: make.conv2d(16, 16, 3, groups=2), (2, 16, 6, 6)),
    "embedding": (lambda make: make.embedding(12, 16, padding_idx=0), None),
    "lstm": (lambda make: make.lstm(8, 12), (2, 5, 8)),
    "lstm, packed": (lambda make: Packed(make.lstm(8, 12, num_layers=2, bidirectional=True), [5, 3]), (2, 5, 8)),
    "attention": (lambda make: make.attention(16, 2), (2, 5, 16)),
}


def outputs(layer, x, in_place):
    x = x.clone().requires_grad_(x.is_floating_point())
    inner = nn.ReLU(in_place)(x * 1.0) if x.is_floating_point() else x
    ys = [nn.Hardswish(in_place)(y) for y in features(layer(inner))]
    total = sum(y.square().sum() for y in ys)
    return [*ys, *torch.autograd.grad(total, [p for p in (x, *layer.parameters()) if p.requires_grad])]


def features(y):
    """All outputs of a layer that are not indices: an LSTM also returns states, and packed sequences hold sizes."""
    if isinstance(y, Tensor):
        return [y] if y.is_floating_point() else []
    return [part for several in y if several is not None for part in features(several)]


@pytest.mark.parametrize("algebra", ["quaternion", "phm-4"])
@pytest.mark.parametrize("kernel", ["auto", "block", "factored", "fused", "thin"])
@pytest.mark.parametrize("name", LAYERS)
def test_in_place_activations(name, kernel, algebra, request):
    if kernel in ("fused", "thin"):
        request.getfixturevalue("library")
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make(Layers(algebra, scope="all+embed"))
    set_kernel(layer, kernel)  # layers that it does not support take another one
    x = torch.randint(12, (3, 7)) if shape is None else torch.randn(shape)
    torch.testing.assert_close(outputs(layer, x, True), outputs(copy.deepcopy(layer), x, False))


def group(*orders):
    """The table of the group algebra of a product of cyclic groups."""
    table = torch.ones(1, 1, 1)
    for n in orders:
        index = torch.arange(n)
        cyclic = torch.eye(n)[(index[:, None] + index) % n]
        table = torch.einsum("ijk,pqr->ipjqkr", table, cyclic).flatten(4).flatten(2, 3).flatten(0, 1)
    return table


def reorder(table, order):
    order = torch.tensor(order)
    return table[order][:, order][:, :, order]


def grade_order(n):
    """The order 1, e1, e2, e3, e12, ... in place of bit sets."""
    return sorted(range(n), key=lambda blade: (blade.bit_count(), blade))


RANKS = {
    "real": 1,
    "complex": 3,
    "clifford(p=1,q=0)": 2,
    "clifford(p=0,q=0,r=1)": 3,
    "quaternion": 8,
    "clifford(p=0,q=2)": 8,
    "octonion": 30,
    "sedenion": 122,
}


def check(table, rank):
    factors = factorize(table)
    assert factors.rank == rank
    assert torch.equal(factors.reconstruct(), table.double())
    assert all(f.dtype == torch.float64 and f.shape == (rank, table.shape[0]) for f in factors)
    x, y = torch.randn(2, table.shape[0], dtype=torch.float64)
    product = ((factors.left @ x) * (factors.right @ y)) @ factors.result
    torch.testing.assert_close(product, torch.einsum("ijk,i,j->k", table.double(), x, y))


@pytest.mark.parametrize(("spec", "rank"), RANKS.items())
def test_ranks_equal_the_literature(spec, rank):
    check(algebra(spec).structure, rank)


@pytest.mark.parametrize(("spec", "rank"), [item for item in RANKS.items() if item[1] > 3 and "clifford" not in item[0]])
def test_the_order_of_the_basis_does_not_matter(spec, rank):
    table = algebra(spec).structure
    order = torch.randperm(table.shape[0], generator=torch.Generator().manual_seed(1)).tolist()
    check(reorder(table, order), rank)


@pytest.mark.parametrize("spec", ["clifford(p=3,q=0)", "clifford(p=0,q=3)", "clifford(p=1,q=3)"])
def test_graded_order_of_a_clifford_algebra(spec):
    table = algebra(spec).structure
    rank = factorize(table).rank
    assert rank < (table.shape[0] ** 2) / 1.5
    check(reorder(table, grade_order(table.shape[0])), rank)


@pytest.mark.parametrize(("orders", "hadamard"), [((3,), None), ((4,), None), ((2, 2), 4), ((2, 2, 2), 8), ((2, 4), None)])
def test_group_tables(orders, hadamard):
    table = group(*orders).double()
    actual = hadamard_factors(table)
    assert (actual and actual.rank) == hadamard
    check(table, hadamard or table.shape[0] ** 2)


def test_zero_pairs_need_no_multiplication():
    check(torch.zeros(3, 3, 3), 0)
    table = torch.zeros(3, 3, 3)
    table[0, 1] = torch.tensor([1.0, 2.0, 3.0])
    check(table, 1)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_any_real_table_decomposes_into_pairs(n):
    check(torch.randn(n, n, n, generator=torch.Generator().manual_seed(n)), n * n)


def test_loop_that_is_not_a_group_decomposes_into_pairs():
    # A Latin square of order 4 with a unit that is not Z_2^2 in any labelling, with signs.
    table = group(4) * torch.tensor([1.0, -1.0, 1.0, 1.0])[:, None, None]
    assert hadamard_factors(table.double()) is None
    check(table, 16)


def test_quaternion_matrix_equals_the_textbook():
    a, b, c, d = torch.randn(4, 3, 2, dtype=torch.float64)
    rows = [[a, -b, -c, -d], [b, a, -d, c], [c, d, a, -b], [d, -c, b, a]]
    expected = torch.cat([torch.cat(row, 1) for row in rows])
    m = real_matrix(algebra("quaternion").double().structure, torch.stack([a, b, c, d]), AxisLayout(12, 4), AxisLayout(8, 4))
    assert torch.equal(m, expected)


def test_kernel_axes_are_last():
    table = algebra("quaternion").structure
    w = torch.randn(4, 2, 3, 5, 6)
    m = real_matrix(table, w, AxisLayout(7, 4), AxisLayout(10, 4))
    assert m.shape == (7, 10, 5, 6)
    assert torch.equal(m[..., 2, 3], real_matrix(table, w[..., 2, 3], AxisLayout(7, 4), AxisLayout(10, 4)))


@pytest.mark.parametrize(("channels", "blocks"), [(0, 1), (10, 3), (2, 4), (4, 0), (-4, 2)])
def test_blocks_must_be_equal(channels, blocks):
    with raises("invalid", f"{channels} channels", f"{blocks} equal blocks"):
        axis_layout(channels, 2, blocks)


def test_no_planned_kernel_is_slower_than_the_real_matrix(monkeypatch):
    """The measured shapes of `benchmarks.speed.plan`, for every instruction set; the stored choices are those of this code."""
    monkeypatch.setattr("zoo.kernels.compiled._state", LOADED)
    stored = json.loads(measured.RESULTS.read_text(encoding="utf-8"))
    assert set(stored) == set(SPEEDS)
    again = copy.deepcopy(stored)
    measured.add_plan(again)
    assert again == stored
    for entry in stored.values():
        assert len(entry["rows"]) == 60
        assert all(row["planned_ratio"] <= measured.SLOWER for row in entry["rows"])
