"""Projection onto the nearest hypercomplex weights: exact if possible, else optimal."""

import numpy as np
import pytest
import torch

from zoo.algebras import algebra
from zoo.conversion.transfer import block_rows, nearest_components, nearest_product, nearest_rule
from zoo.kernels import axis_layout, real_matrix

FIXED = ["real", "quaternion", "octonion", "clifford(p=0,q=0,r=1)"]
SIZES = [((12, 8), (1, 1)), ((10, 7), (1, 1)), ((20, 30), (2, 3)), ((6, 9), (3, 3))]


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def axes(n, channels, blocks):
    inp, out = (axis_layout(c, n, b) for c, b in zip(channels, blocks, strict=True))
    return out, inp


def error(matrix, structure, w, out, inp):
    return (matrix - real_matrix(structure, w, out, inp)).norm().item()


@pytest.mark.parametrize("spec", FIXED)
@pytest.mark.parametrize("kernel", [(), (3, 2)])
@pytest.mark.parametrize(("channels", "blocks"), SIZES)
def test_the_projection_of_a_hypercomplex_matrix_is_exact(spec, kernel, channels, blocks):
    table = algebra(spec).double().structure
    out, inp = axes(table.shape[0], channels, blocks)
    w = draw(table.shape[0], out.elements, inp.elements, *kernel)
    matrix = real_matrix(table, w, out, inp)
    projected = nearest_components(matrix, table, out, inp)
    assert projected.shape == w.shape
    torch.testing.assert_close(real_matrix(table, projected, out, inp), matrix)
    if all(axis.size == axis.n * axis.width for axis in (out, inp)):
        torch.testing.assert_close(projected, w)


def test_weights_that_only_multiply_padding_are_zero():
    table = algebra("octonion").double().structure
    out, inp = axes(8, (9, 9), (1, 1))
    w = nearest_components(draw(9, 9), table, out, inp).requires_grad_()
    real_matrix(table, w, out, inp).square().sum().backward()
    unread = w.grad == 0
    assert unread.any()
    assert w.detach()[unread].abs().max() < 1e-12


@pytest.mark.parametrize("spec", FIXED[1:])
@pytest.mark.parametrize(("channels", "blocks"), SIZES)
def test_the_residual_is_orthogonal_to_every_hypercomplex_matrix(spec, channels, blocks):
    table = algebra(spec).double().structure
    out, inp = axes(table.shape[0], channels, blocks)
    matrix = draw(channels[1], channels[0], 2)
    residual = matrix - real_matrix(table, nearest_components(matrix, table, out, inp), out, inp)
    assert residual.norm() > 0.1
    for seed in range(5):
        other = real_matrix(table, draw(table.shape[0], out.elements, inp.elements, 2, seed=seed + 1), out, inp)
        assert abs((residual * other).sum().item()) < 1e-10 * other.norm().item() * matrix.norm().item()


def rearranged(matrix, n):
    """The rearrangement of Van Loan and Pitsianis in NumPy: one row for each of the n^2 blocks."""
    rows, columns = (size // n for size in matrix.shape)
    blocks = [matrix[k * rows : (k + 1) * rows, j * columns : (j + 1) * columns].ravel() for k in range(n) for j in range(n)]
    return np.stack(blocks)


@pytest.mark.parametrize("n", [1, 3])
def test_phm_error_is_the_tail_of_the_singular_values(n):
    out, inp = axes(n, (6 * n, 4 * n), (1, 1))
    matrix = draw(4 * n, 6 * n)
    rule = nearest_product([block_rows(matrix, out, inp)], n)
    w = nearest_components(matrix, rule, out, inp)
    tail = np.linalg.svd(rearranged(matrix.numpy(), n), compute_uv=False)[n:]
    np.testing.assert_allclose(error(matrix, rule, w, out, inp), np.sqrt((tail**2).sum()), rtol=1e-9, atol=1e-9)
    assert rule.square().sum().item() == pytest.approx(n * n)


def test_a_shared_rule_is_the_best_for_all_layers_together():
    n, sizes = 3, [((12, 9), (1, 1)), ((9, 12), (1, 1))]
    layouts = [axes(n, *size) for size in sizes]
    matrices = [draw(out.channels, inp.channels, seed=i) for i, (out, inp) in enumerate(layouts)]
    rows = [block_rows(m, *axis) for m, axis in zip(matrices, layouts, strict=True)]

    def total(rule):
        errors = [
            error(m, rule, nearest_components(m, rule, *axis), *axis) ** 2 for m, axis in zip(matrices, layouts, strict=True)
        ]
        return sum(errors)

    shared = nearest_product(rows, n)
    together = np.concatenate([rearranged(m.numpy(), n) for m in matrices], 1)
    tail = np.linalg.svd(together, compute_uv=False)[n:]
    assert total(shared) == pytest.approx((tail**2).sum())
    for alone in rows:
        assert total(nearest_product([alone], n)) > total(shared)


@pytest.mark.parametrize("rank", [8])
def test_the_nearest_factors_of_a_low_rank_product_are_exact(rank):
    torch.manual_seed(0)
    table, start = algebra("quaternion").structure.double(), algebra(f"phm(n=4, rank={rank})").double()
    fitted = nearest_rule(table, start)
    torch.testing.assert_close(torch.einsum("ri,rj,rk->ijk", *fitted), table)
    lengths = fitted.norm(dim=-1)
    torch.testing.assert_close(lengths[0], lengths[2])
    assert nearest_rule(table, algebra("phm-4")) is table
