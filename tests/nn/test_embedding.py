"""Embeddings against torch's, token embeddings, position embeddings and rotary positions."""

import math

import pytest
import torch
from torch import nn

from tests.errors import raises
from zoo.algebras import algebra, reals
from zoo.nn import Embedding, Layers
from zoo.nn.embedding import PositionEmbedding, apply_rotation, rotation
from zoo.nn.weight import INITS
from zoo.testing.backbone import installed_algebras


def test_equals_torch_over_the_reals():
    ours, theirs = Embedding(11, 6, algebra=reals()), nn.Embedding(11, 6)
    ours.components.data = theirs.weight.detach().clone()
    words = torch.tensor([[3, 0, 10], [3, 3, 7]])
    assert torch.equal(ours(words), theirs(words))
    for table in (ours, theirs):
        table(words).square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def prune(table):
    nn.utils.prune.l1_unstructured(table.weight_module, "components", 0.1)


@pytest.mark.parametrize("change", [nn.utils.parametrizations.weight_norm, prune])
def test_padding_stays_zero_with_parametrizations(change):
    table = Embedding(10, 6, algebra=algebra("quaternion"), padding_idx=0)
    change(table)
    y = table(torch.tensor([0, 3]))
    assert y[0].abs().max() == 0 < y[1].abs().max()


def test_look_up_of_any_shape_ignores_autocast():
    table = Embedding(11, 10, algebra=algebra("phm(n=4, rank=6)"))
    for index in (torch.tensor(3), torch.zeros(2, 3, 4, dtype=torch.long), torch.zeros(0, 5, dtype=torch.int32)):
        with torch.autocast("cpu", torch.bfloat16):
            y = table(index)
        assert y.shape == (*index.shape, 10)
        assert y.dtype == torch.float32


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("scope", ["all", "all+embed"])
def test_table_has_unit_variance_with_every_initialization(init, scope):
    torch.manual_seed(0)
    table = Layers("quaternion", scope=scope, init=init).embedding(400, 64)
    assert abs(table.weight.std() - 1) < 0.05


@pytest.mark.parametrize("padding_idx", [0, -3])
@pytest.mark.parametrize("spec", ["real", "quaternion", "phm-3"])
def test_padding_row_is_zero_without_gradient(spec, padding_idx):
    table, torchs = Embedding(10, 6, padding_idx, algebra=algebra(spec)), nn.Embedding(10, 6, padding_idx)
    assert table.padding_idx == torchs.padding_idx
    assert table.weight.eq(0).all(1).nonzero().flatten().tolist() == [torchs.padding_idx]
    plain = Embedding(10, 6, algebra=algebra(spec))
    plain.load_state_dict(table.state_dict())
    others = torch.arange(10) != table.padding_idx
    assert torch.equal(table.weight[others], plain.weight[others])
    torch.testing.assert_close(table(torch.arange(10)), table.weight.detach())
    padding = table(torch.tensor([table.padding_idx]))
    assert padding.eq(0).all()
    padding.sum().backward()
    assert table.components.grad.abs().max() == 0


@pytest.mark.parametrize("padding_idx", [10, -11])
def test_padding_idx_out_of_range(padding_idx):
    with raises("invalid", f"padding_idx={padding_idx}", "-10 to 9"):
        Embedding(10, 6, padding_idx, algebra=algebra("quaternion"))


@pytest.mark.parametrize("word", [-1, 11, 1000])
def test_index_out_of_range(word):
    # With n = 4 and 11 rows there are 12 places: 11 is a place, but no word.
    with pytest.raises(IndexError):
        Embedding(11, 8, algebra=algebra("quaternion"))(torch.tensor([0, word]))


TOKENS = torch.tensor([[3, 1, 0], [2, 4, 5]])


def embed_tokens(dim=8, embedding=None, vectors=None, algebra="quaternion", scope="all", **options):
    torch.manual_seed(0)
    return Layers(algebra, scope, embedding=embedding, vectors=vectors).token_embedding(6, dim, 5, **options)


def pretrained(width):
    noise = torch.Generator().manual_seed(1)
    found = torch.tensor([False, False, True, True, True, False])
    return torch.randn(6, width, generator=noise) * found[:, None], found


@pytest.mark.parametrize("positions", [None, "auto", "learned", "trigonometric"])
@pytest.mark.parametrize("embedding", ["table", "table(projection=relu)", "complex_order", "complex_vanilla"])
def test_padding_is_zero(embedding, positions):
    y = embed_tokens(embedding=embedding, positions=positions)(TOKENS)
    assert y.shape == (2, 3, 8)
    assert (y[0, 2] == 0).all()
    assert (y[TOKENS != 0].abs().sum(-1) > 0).all()


def test_table_is_real_with_configurable_std():
    assert embed_tokens().embedding.table.algebra.n == 1
    assert embed_tokens(scope="all+embed").embedding.table.algebra.n == 4
    wide, narrow = (embed_tokens(embedding=f"table(std={std})").embedding.table.weight for std in (1.0, 0.1))
    torch.testing.assert_close(narrow, 0.1 * wide)


def test_default_positions():
    names = [
        embed_tokens(default="learned").position_embedding.name,
        embed_tokens(default="learned", positions="trigonometric").position_embedding.name,
        embed_tokens(default="learned", embedding="complex_order").position_embedding.name,
        embed_tokens(default="learned", embedding="complex_vanilla").position_embedding.name,
        embed_tokens(default="learned", embedding="complex_order", positions="trigonometric").position_embedding.name,
    ]
    assert names == ["learned", "trigonometric", "none", "learned", "trigonometric"]


def test_scale_of_words_and_positions():
    big = 4096
    assert 0.09 < embed_tokens(dim=big, positions="learned").position_embedding.table.std() < 0.11  # as the words
    for positions, factor in ((None, 1), ("learned", 1), ("trigonometric", big**0.5)):
        layer = embed_tokens(dim=big, positions=positions)
        torch.testing.assert_close(layer(TOKENS)[1], layer.position_embedding(factor * layer.embedding(TOKENS))[1])
    layer = embed_tokens(vectors=8, positions="trigonometric")  # pretrained vectors are as large as they are
    torch.testing.assert_close(layer(TOKENS)[1], layer.position_embedding(layer.embedding(TOKENS))[1])


def test_pretrained_vectors_of_matching_width():
    layer, (matrix, found) = embed_tokens(vectors=8), pretrained(8)
    layer.embedding.load_vectors(matrix, found)
    table = layer.embedding.table
    torch.testing.assert_close(table.weight[found], matrix[found])
    assert (table.weight[0] == 0).all()
    assert (table.weight[1].abs() > 0).all()  # a word without a vector has one all the same
    assert not any(p.requires_grad for p in layer.parameters())
    assert embed_tokens(vectors=8, embedding="table(trained=true)").embedding.table.components.requires_grad
    torch.testing.assert_close(layer(TOKENS)[0, 0], matrix[3])


def test_pretrained_vectors_of_another_width_are_projected():
    layer, (matrix, found) = embed_tokens(vectors=5), pretrained(5)
    layer.embedding.load_vectors(matrix, found)
    projection = layer.embedding.projection[0]
    expected = (matrix[3] @ projection.weight.T + projection.bias).tanh()
    torch.testing.assert_close(layer(TOKENS)[0, 0], expected)
    assert {name for name, p in layer.named_parameters() if p.requires_grad} == {
        "embedding.projection.0.weight_module.components",
        "embedding.projection.0.bias",
    }


@pytest.mark.parametrize(
    ("embedding", "vectors", "code", "value"),
    [
        ("table(projection=none)", 5, "invalid", "dim=8"),
        ("tabel", None, "unknown", "table"),
        ("table(std=-1)", None, "invalid", "std=-1"),
        ("table(widht=3)", None, "unknown", "widht"),
    ],
)
def test_invalid_embeddings(embedding, vectors, code, value):
    with raises(code, value):
        embed_tokens(embedding=embedding, vectors=vectors)


def test_invalid_pretrained_vectors():
    with raises("unknown", "'gelu'"):
        embed_tokens(embedding="table(projection=gelu)")
    with raises("unsupported", "--scope"):
        embed_tokens(vectors=8, scope="all+embed").embedding.load_vectors(*pretrained(8))


def test_default_score_applies_to_attention_over_the_algebra():
    assert Layers("complex_order").attention(8, 2).score == "hermitian"
    assert Layers("complex_order", "ffn").attention(8, 2).score == "dot"
    assert Layers("complex_order", "ffn").attention(8, 2, score="hermitian").score == "hermitian"


@pytest.mark.parametrize("dim", [6, 7])
def test_trigonometric_positions_equal_the_formula(dim):
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


def test_learned_positions():
    layer = PositionEmbedding("learned", 6, 4)
    x = torch.randn(2, 3, 6)
    assert torch.equal(layer(x), x + layer.table[:3])
    assert [p.shape for p in layer.parameters()] == [(4, 6)]
    layer(x).sum().backward()
    assert torch.equal(layer.table.grad, torch.tensor([2.0, 2.0, 2.0, 0.0])[:, None].expand(4, 6))
    before = layer.table.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(layer.table, before)


def test_invalid_positions():
    with raises("invalid", "max_length=4"):
        PositionEmbedding("learned", 6, 4)(torch.randn(2, 5, 6))
    with raises("unknown", "'rotary'"):
        PositionEmbedding("rotary", 6, 4)


def rotate(x, n):
    return apply_rotation(x, n, *rotation(x, n))


def scores(structure, q, k):
    """All components of q k at every pair of places, [L, L, n]."""
    n = structure.shape[0]
    return torch.einsum("ijk,lic,mjc->lmk", structure, q[0, 0].unflatten(-1, (n, -1)), k[0, 0].unflatten(-1, (n, -1)))


@pytest.mark.parametrize("spec", installed_algebras())
def test_scores_of_rotated_heads_depend_only_on_distance(spec):
    structure = algebra(spec).structure.detach().double()
    n = structure.shape[0]
    q, k = (torch.randn(1, 1, 1, 4 * n, dtype=torch.float64).expand(-1, -1, 6, -1) for _ in range(2))
    e = scores(structure, rotate(q, n), rotate(k, n))
    torch.testing.assert_close(e[1:, 1:], e[:-1, :-1])
    torch.testing.assert_close(e[0, 0], scores(structure, q, k)[0, 0])
    assert not torch.isclose(e[0, 1:], e[0, :-1]).all(-1).any()


def test_rotation_equals_a_complex_phase():
    n, c, length = 4, 6, 5
    x = torch.randn(2, 3, length, n * c)
    z = torch.view_as_complex(x.unflatten(-1, (n, c // 2, 2)))
    speed = 10000 ** (-torch.arange(0, c, 2) / c)
    phase = torch.polar(torch.ones(length, c // 2), torch.outer(torch.arange(length), speed))
    expected = torch.view_as_real(z * phase[:, None]).flatten(-3)
    torch.testing.assert_close(rotate(x, n), expected)
    torch.testing.assert_close(rotate(x, n).norm(dim=-1), x.norm(dim=-1))
