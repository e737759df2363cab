"""Positions that are added, and rotary positions."""

import math

import pytest
import torch

from zoo.algebras import algebra
from zoo.errors import InputError
from zoo.layers.attention import rotate
from zoo.layers.token_embedding import PositionEmbedding
from zoo.testing.backbone import installed_algebras


def test_none_changes_nothing():
    x, layer = torch.randn(2, 9, 6), PositionEmbedding("none", 6, 4)
    assert torch.equal(layer(x), x)
    assert not layer.state_dict()


@pytest.mark.parametrize("dim", [6, 7])
def test_trigonometric_positions_are_the_formula(dim):
    x = torch.randn(2, 5, dim, dtype=torch.float64)
    layer = PositionEmbedding("trigonometric", dim, 3)
    added = layer(x) - x
    for p in range(5):
        for channel in range(dim):
            angle = p / 10000 ** (channel // 2 * 2 / dim)
            expected = math.cos(angle) if channel % 2 else math.sin(angle)
            assert added[1, p, channel].item() == pytest.approx(expected, abs=1e-12)
    assert not layer.state_dict()
    assert not list(layer.parameters())


def test_far_places_differ_in_every_precision():
    x = torch.zeros(1, 400, 64, dtype=torch.bfloat16)
    added = PositionEmbedding("trigonometric", 64, 1)(x)
    assert added.dtype == torch.bfloat16
    exact = PositionEmbedding("trigonometric", 64, 1)(x.double())
    assert (added.double() - exact).abs().max() < 1e-2


def test_learned_positions_are_rows_of_a_table():
    layer = PositionEmbedding("learned", 6, 4)
    x = torch.randn(2, 3, 6)
    assert torch.equal(layer(x), x + layer.table[:3])
    assert [p.shape for p in layer.parameters()] == [(4, 6)]
    layer(x).sum().backward()
    assert torch.equal(layer.table.grad, torch.tensor([2.0, 2.0, 2.0, 0.0])[:, None].expand(4, 6))
    before = layer.table.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.table, before)


def test_a_text_longer_than_the_table_is_one_line():
    with pytest.raises(InputError, match="a text of 5 tokens: the learned positions end at max_length=4"):
        PositionEmbedding("learned", 6, 4)(torch.randn(2, 5, 6))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("rotary", 6, 4), "unknown positions 'rotary'"), (("none", 0, 4), "dim=0"), (("learned", 6, 0), "max_length=0")],
)
def test_bad_options_are_one_line(arguments, said):
    with pytest.raises(InputError, match=said):
        PositionEmbedding(*arguments)


def scores(structure, q, k):
    """All components of q k at every pair of places, [L, L, n]."""
    n = structure.shape[0]
    return torch.einsum("ijk,lic,mjc->lmk", structure, q[0, 0].unflatten(-1, (n, -1)), k[0, 0].unflatten(-1, (n, -1)))


@pytest.mark.parametrize("spec", installed_algebras())
def test_scores_of_rotated_heads_depend_on_the_distance_alone(spec):
    structure = algebra(spec).structure.detach().double()
    n = structure.shape[0]
    q, k = (torch.randn(1, 1, 1, 4 * n, dtype=torch.float64).expand(-1, -1, 6, -1) for _ in range(2))
    e = scores(structure, rotate(q, n), rotate(k, n))
    torch.testing.assert_close(e[1:, 1:], e[:-1, :-1])
    torch.testing.assert_close(e[0, 0], scores(structure, q, k)[0, 0])
    assert not torch.isclose(e[0, 1:], e[0, :-1]).all(-1).any()


def test_rotation_is_a_complex_phase_alike_in_every_component():
    n, c, length = 4, 6, 5
    x = torch.randn(2, 3, length, n * c)
    z = torch.view_as_complex(x.unflatten(-1, (n, c // 2, 2)))
    speed = 10000 ** (-torch.arange(0, c, 2) / c)
    phase = torch.polar(torch.ones(length, c // 2), torch.outer(torch.arange(length), speed))
    expected = torch.view_as_real(z * phase[:, None]).flatten(-3)
    torch.testing.assert_close(rotate(x, n), expected)
    torch.testing.assert_close(rotate(x, n).norm(dim=-1), x.norm(dim=-1))


def test_rotation_commutes_with_the_product():
    product = algebra("quaternion")
    x, q = torch.randn(1, 2, 5, 16), torch.randn(4, 1).expand(4, 4).flatten().expand(1, 2, 5, 16)
    torch.testing.assert_close(rotate(product(x, q), 4), product(rotate(x, 4), q))


@pytest.mark.parametrize(("channels", "n"), [(12, 4), (6, 4), (3, 1)])
def test_pairs_lie_inside_a_component(channels, n):
    with pytest.raises(InputError, match=f"a head of {channels} must be a multiple of {2 * n}"):
        rotate(torch.randn(1, 1, 2, channels), n)
