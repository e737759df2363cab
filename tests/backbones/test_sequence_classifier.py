"""Text classifiers over every algebra: padding, definitions, parameter counts and errors."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo.nn.weight import Weight
from zoo.testing.backbone import fitting_dim

INFO = {"vocab_size": 30, "max_length": 20, "num_classes": 3}
SPECS = {
    "lstm": "lstm(dim={dim}, hidden={dim})",
    "lstm, stacked": "lstm(dim={dim}, hidden=0, depth=2, bidirectional=true, rules=gate, pooling=last)",
    "transformer": "transformer(dim={dim}, depth=1, heads=2, ffn={dim})",
    "transformer, product": "transformer(dim={dim}, depth=1, heads=2, score=product, positions=rotary)",
    "transformer, hermitian": "transformer(dim={dim}, depth=1, heads=2, score=hermitian, readout=modulus, positions=learned)",
    "cnn": "cnn(dim={dim}, filters={dim}, hidden={dim})",
    "fasttext": "fasttext(dim={dim}, hidden={dim})",
}
PAIRS = SPECS | {"decomposable_attention": "decomposable_attention(dim={dim})"}


def build(spec, algebra, **info):
    """Build a network with sizes that are multiples of n."""
    return zoo.backbone(spec.replace("{dim}", str(fitting_dim(zoo.algebra(algebra).n))), algebra, **INFO, **info)


def texts(lengths, width, seed=0):
    noise = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, INFO["vocab_size"], (len(lengths), width), generator=noise)
    return tokens * (torch.arange(width) < torch.tensor(lengths)[:, None])


def wider(tokens, more):
    return F.pad(tokens, (0, more))


@pytest.mark.parametrize("algebra", ["quaternion", "octonion", "phm(n=4)", "complex_order"])
@pytest.mark.parametrize("name", SPECS)
def test_padding_changes_nothing(name, algebra):
    net = build(SPECS[name], algebra).eval()
    tokens = texts([5, 7, 1, 3], 7)
    torch.testing.assert_close(net(wider(tokens, 9)), net(tokens), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net(tokens[2:3, :1]), net(tokens)[2:3], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algebra", ["real", "quaternion", "phm(n=4)"])
@pytest.mark.parametrize("name", PAIRS)
def test_padding_of_either_text_changes_nothing(name, algebra):
    net = build(PAIRS[name], algebra, pair=True).eval()
    one, other = texts([5, 7, 1, 3], 7), texts([2, 6, 6, 1], 6, seed=1)
    torch.testing.assert_close(net(wider(one, 4), wider(other, 9)), net(one, other), rtol=1e-4, atol=1e-5)


def test_decomposable_attention_over_the_reals_equals_its_definition():
    """DeAtt with matrices (Parikh et al. 2016; features of Tay et al. 2019, section 4.1)."""
    net = zoo.backbone("decomposable_attention(dim=12, depth=1, attend_depth=1)", "real", **INFO, pair=True).double().eval()
    one, other = texts([4, 6], 6), texts([5, 3], 5, seed=1)

    def layer(stack, x):
        return (x @ stack[0].weight.T + stack[0].bias).relu()

    for row in range(2):
        a, b = (net.token_embedding(t[row : row + 1])[0][: int((t[row] != 0).sum())] for t in (one, other))
        scores = layer(net.attend, a) @ layer(net.attend, b).T
        aligned_b, aligned_a = scores.softmax(1) @ b, scores.T.softmax(1) @ a
        c1 = layer(net.compare, torch.cat([aligned_a, b, aligned_a * b, aligned_a - b], 1)).sum(0)
        c2 = layer(net.compare, torch.cat([aligned_b, a, aligned_b * a, aligned_b - a], 1)).sum(0)
        y = layer(net.aggregate, torch.cat([c1, c2, c1 * c2, c1 - c2]))
        expected = y @ net.head.weight.T + net.head.bias
        torch.testing.assert_close(net(one[row : row + 1], other[row : row + 1])[0], expected)


@pytest.mark.parametrize("algebra", ["quaternion", "octonion", "phm(n=3)"])
def test_decomposable_attention_over_an_algebra_equals_its_definition(algebra):
    """Q-Att (Tay et al. 2019, section 3.2), component by component; the softmax of the other side is over a_i b_j too."""
    net = zoo.backbone("decomposable_attention(dim=24, depth=1, attend_depth=0)", algebra, **INFO, pair=True).double().eval()
    one, other = texts([4], 4), texts([3], 3, seed=1)
    rule = net.product.algebra.structure
    n = rule.shape[0]
    a, b = (net.token_embedding(t)[0].unflatten(-1, (n, -1)) for t in (one, other))
    scores = torch.einsum("ijk,pic,qjc->kpq", rule, a, b)
    aligned_b = torch.einsum("kpq,qkc->pkc", scores.softmax(2), b)
    aligned_a = torch.einsum("kpq,pkc->qkc", scores.softmax(1), a)

    def features(x, y):
        xy = torch.einsum("ijk,...ic,...jc->...kc", rule, x, y)
        return torch.cat([t.flatten(-2) for t in (x, y, xy, x - y)], -1)

    c1, c2 = (net.compare(features(x, y)).sum(0) for x, y in ((aligned_a, b), (aligned_b, a)))
    expected = net.head(net.aggregate(features(*(c.unflatten(-1, (n, -1)) for c in (c1, c2)))))
    torch.testing.assert_close(net(one, other)[0], expected)


def test_the_parameter_counts_of_the_tiny_transformer():
    """400K, 100K and 300K (Tay et al. 2019, Table 2): the matrices of two encoder layers."""
    for algebra, scope, count in (
        ("real", "all", 393_216),
        ("quaternion", "all", 98_304),
        ("quaternion", "attention", 294_912),
    ):
        net = zoo.backbone("transformer/tiny", algebra, scope=scope, **INFO)
        body = [layer for name, layer in net.named_modules() if isinstance(layer, Weight) and "blocks" in name]
        assert sum(layer.components.numel() for layer in body) == count


@pytest.mark.parametrize(
    ("spec", "pair", "value"),
    [
        ("transformer(heads=3)", False, "dim=128"),
        ("decomposable_attention(dim=30)", True, "decomposable_attention(dim=32)"),
    ],
)
def test_invalid_options(spec, pair, value):
    with raises("invalid", value):
        zoo.backbone(spec, "quaternion", **INFO, pair=pair)


def test_unknown_names_and_unsupported_data():
    for spec, value in (("transformer/huge", "transformer/base"), ("lstm(rules=eight)", "'eight'")):
        with raises("unknown", value):
            zoo.backbone(spec, "real", **INFO, pair=True)
    with raises("mismatch", "pairs"):
        zoo.backbone("decomposable_attention", "real", **INFO, pair=False)


def test_the_number_of_texts_is_checked():
    text = texts([2], 2)
    with raises("invalid", "one text"):
        zoo.backbone("fasttext", "real", **INFO)(text, text)
    with raises("invalid", "two texts"):
        zoo.backbone("fasttext", "real", **INFO, pair=True)(text)


def test_batch_norm_ignores_padding():
    options = {"dim": 16, "depth": 2, "heads": 2, "ffn": 16, "dropout": 0.0, "norm": "batch"}
    net = zoo.backbone("transformer", "complex_order", **options, **INFO).train()
    tokens = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]])
    narrow = net(tokens)
    torch.testing.assert_close(net(F.pad(tokens, (0, 3))), narrow)
    assert not torch.allclose(net(tokens[:1]), narrow[:1])  # statistics depend on the batch
    with raises("invalid", "norm=batch"):
        zoo.backbone("transformer", "real", **options, **INFO, seq2seq=True)


def test_scale_embedding():
    def first(**options):
        torch.manual_seed(0)
        embedding = zoo.backbone("cnn", "real", dim=16, positions="trigonometric", **options, **INFO).encoder.token_embedding
        return embedding.eval()(torch.tensor([[3]]))[0, 0], embedding.embedding(torch.tensor([[3]]))[0, 0]

    position = torch.tensor([0.0, 1.0]).repeat(8)  # sines and cosines of position 0
    for options, factor in (({}, 4), ({"scale_embedding": True}, 4), ({"scale_embedding": False}, 1)):
        vector, word = first(**options)
        torch.testing.assert_close(vector, factor * word + position)


@pytest.mark.parametrize("pooling", ["mean", "max", "max+mean", "sum", "first", "last"])
@pytest.mark.parametrize("name", ["lstm", "transformer", "fasttext"])
def test_an_empty_text_has_finite_outputs_and_gradients(name, pooling):
    net = zoo.backbone(f"{name}(pooling={pooling!r})", "quaternion", vocab_size=20, num_classes=3, max_length=8).eval()
    tokens = torch.tensor([[0] * 8, [3, 4, 5] + [0] * 5])
    y = net(tokens)
    torch.testing.assert_close(y[1:], net(tokens[1:]))
    y.sum().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)
