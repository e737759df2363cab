"""Factors reconstruct structure tensors exactly, with the ranks of the literature."""

import pytest
import torch

from zoo.algebras import algebra
from zoo.algebras.properties import factorize, hadamard_factors


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
