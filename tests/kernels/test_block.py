"""The real matrix against matrices written by hand, and the layout of its axes."""

import pytest
import torch

from tests.errors import raises
from zoo.algebras import algebra
from zoo.kernels import AxisLayout, axis_layout, real_matrix


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
