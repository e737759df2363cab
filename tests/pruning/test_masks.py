"""Prunable parameters, and masks against a slow definition."""

from decimal import ROUND_HALF_EVEN, Decimal
from itertools import product

import pytest
import torch
from timm.layers import LayerNorm
from torch import nn

import zoo
from tests.errors import raises
from zoo.nn import LSTM, Embedding, Linear
from zoo.pruning import masks as lib

QUATERNION = zoo.algebra("quaternion")


def tiny(algebra="quaternion", **options):
    torch.manual_seed(0)
    sizes = {"in_channels": 1, "image_size": 8, "num_classes": 3}
    return zoo.backbone("vit(dim=16, depth=1, heads=2)", algebra, **sizes | options)


def dropped(score, alive, count):
    """Return the positions of the lowest scores of survivors; ties by position."""
    order = sorted((s, i) for i, (s, a) in enumerate(zip(score, alive, strict=True)) if a)
    return {i for _, i in order[:count]}


def expected_count(rate, left):
    return int((Decimal(str(rate)) * left).quantize(Decimal(1), ROUND_HALF_EVEN))


# --- prunable parameters ---


def test_the_matrices_of_torch_and_of_the_zoo_are_prunable():
    torch_layers = {
        "linear": nn.Linear(4, 3),
        "conv": nn.Conv2d(2, 4, 3),
        "up": nn.ConvTranspose1d(2, 4, 3),
        "attention": nn.MultiheadAttention(8, 2),
        "other": nn.MultiheadAttention(8, 2, kdim=4, vdim=4),
        "lstm": nn.LSTM(4, 5),
        "norm": LayerNorm(4),
        "batch": nn.BatchNorm1d(4),
        "table": nn.Embedding(7, 4),
    }
    expected = ["linear.weight", "conv.weight", "up.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0"]
    expected += ["attention.in_proj_weight", "attention.out_proj.weight", "other.out_proj.weight"]
    expected += [f"other.{letter}_proj_weight" for letter in "qkv"]
    assert sorted(lib.prunable(nn.ModuleDict(torch_layers))) == sorted(expected)
    ours = {
        "lstm": LSTM(8, 8, algebra=QUATERNION),
        "table": Embedding(8, 8, algebra=QUATERNION),
        "linear": Linear(8, 8, algebra=QUATERNION),
    }
    matrices = lib.prunable(nn.ModuleDict(ours))
    cells = ["lstm.cells.0.from_hidden.0.components", "lstm.cells.0.from_input.0.components"]
    assert sorted(matrices) == ["linear.weight_module.components", *cells]
    assert all(matrix.components for matrix in matrices.values())
    shared = nn.ModuleDict({"table": nn.Embedding(7, 4), "head": nn.Linear(4, 7, bias=False), "inner": nn.Linear(4, 4)})
    shared["head"].weight = shared["table"].weight
    assert list(lib.prunable(shared)) == ["inner.weight"]
    assert "table.weight" in lib.prunable(shared, include=["table.*"])


def test_include_and_exclude():
    net = tiny()
    assert {"cls_token", "norm.weight"} <= set(lib.prunable(net, include=["cls_token", "norm.*"]))
    assert "head.weight" not in lib.prunable(net, exclude=["head*"])
    net.head.weight.requires_grad_(False)
    assert "head.weight" not in lib.prunable(net)


@pytest.mark.parametrize("algebra", ["real", "quaternion"])
def test_queries_keys_and_values_are_three_matrices_each(algebra):
    (name, one), *rest = lib.prunable(tiny(algebra), "qkv").items()
    assert ".attn.qkv." in name
    assert (rest, one.parts) == ([], 3)
    net = nn.TransformerEncoderLayer(8, 2)
    assert [(name, one.parts) for name, one in lib.prunable(net, "qkv").items()] == [("self_attn.in_proj_weight", 3)]
    zoo.convert(net, "quaternion")
    assert [(name, one.parts) for name, one in lib.prunable(net, "qkv").items()] == [("self_attn.in_proj.components", 3)]
    cross = zoo.nn.Attention(8, 2, algebra=QUATERNION, cross=True)
    assert [one.parts for one in lib.prunable(cross, "qkv").values()] == [1, 2]


@pytest.mark.parametrize(
    ("call", "code", "value"),
    [
        (lambda: lib.prunable(nn.Linear(3, 3), include=["nothing.*"]), "unknown", "'nothing.*'"),
        (lambda: lib.Pruning(rate=1.0), "invalid", "rate=1.0"),
        (lambda: lib.Pruning(unit="element", scope="component"), "conflict", "unit=element"),
        (lambda: lib.next_masks(*state(nn.Linear(6, 4)), lib.Pruning(pattern=(2, 4))), "invalid", "weight has 6"),
        (lambda: lib.next_masks(*state(nn.Linear(3, 3), float("nan")), lib.Pruning()), "invalid", "weight"),
    ],
)
def test_errors(call, code, value):
    with raises(code, value):
        call()


# --- scores and counts ---


def state(net, offset=0.0):
    """Prunable matrices, their weights, and full masks."""
    matrices = lib.prunable(net)
    return matrices, {name: one.parameter.detach() + offset for name, one in matrices.items()}, lib.full_masks(matrices)


def groups(matrices, scope):
    """The slow definition of the groups that are ranked together: lists of (name, index)."""
    cells = {}
    for name, one in matrices.items():
        shape = one.parameter.shape
        for index in product(*map(range, shape)):
            part = index[one.out_axis] * one.parts // shape[one.out_axis]
            component = index[0] if one.components else 0
            key = {"tensor": (name, part), "component": (name, part, component), "global": ()}[scope]
            cells.setdefault(key, []).append((name, index))
    return list(cells.values())


@pytest.mark.parametrize("algebra", ["real", "quaternion"])
@pytest.mark.parametrize("scope", lib.SCOPES)
@pytest.mark.parametrize("score", ["magnitude", "movement"])
def test_masks_of_numbers_equal_the_slow_definition(algebra, scope, score):
    net = nn.ModuleList([zoo.nn.Attention(8, 1, algebra=zoo.algebra(algebra)), nn.Conv2d(2, 3, 2)])
    matrices, values, masks = state(net)
    for value in values.values():  # many ties
        value.mul_(4).round_()
    pruning = lib.Pruning(rate=0.3, scope=scope, score=score)
    for _ in range(2):
        new = lib.next_masks(matrices, values, masks, pruning)
        for group in groups(matrices, scope):
            rank = [abs(float(values[n][i])) if score == "magnitude" else float(values[n][i]) for n, i in group]
            alive = [bool(masks[n][i]) for n, i in group]
            gone = dropped(rank, alive, expected_count(0.3, sum(alive)))
            assert [bool(new[n][i]) for n, i in group] == [a and k not in gone for k, a in enumerate(alive)]
        masks = new


@pytest.mark.parametrize("scope", ["tensor", "global"])
@pytest.mark.parametrize("score", lib.SCORES)
def test_masks_of_elements_equal_the_slow_definition(scope, score):
    net = nn.ModuleList([Linear(8, 12, algebra=QUATERNION), nn.Linear(5, 3)])
    matrices, values, masks = state(net)
    first, second = lib.next_masks(matrices, values, masks, lib.Pruning(0.4, score, scope, "element")).values()
    assert (first == first[:1]).all()
    w, other = (v.double() for v in values.values())
    ranks = w.square().mean(0).sqrt() if score == "magnitude" else w.mean(0).abs() if score == "snip" else w.mean(0)
    ranks = [ranks.flatten().tolist(), (other.abs() if score in ("magnitude", "snip") else other).flatten().tolist()]
    kept = [first[0].flatten().tolist(), second.flatten().tolist()]
    if scope == "global":
        ranks, kept = ([[*lists[0], *lists[1]]] for lists in (ranks, kept))
    for rank, keep in zip(ranks, kept, strict=True):
        gone = dropped(rank, [True] * len(rank), expected_count(0.4, len(rank)))
        assert {i for i, k in enumerate(keep) if not k} == gone


@pytest.mark.parametrize(("rate", "count", "left"), [(0.5, 5, 3), (0.5, 7, 3), (0.57, 50, 22), (0, 5, 5)])
def test_counts_round_half_to_even(rate, count, left):
    matrices, values, masks = state(nn.Linear(count, 1, bias=False))
    assert lib.remaining(lib.next_masks(matrices, values, masks, lib.Pruning(rate=rate))) == left


@pytest.mark.parametrize("unit", lib.UNITS)
@pytest.mark.parametrize(
    "layer", [lambda: Linear(32, 8, algebra=QUATERNION), lambda: nn.Conv2d(8, 4, 3), lambda: nn.Linear(8, 4)]
)
def test_a_pattern_keeps_two_of_four_inputs(unit, layer):
    matrices, values, masks = state(layer())
    ((name, one),) = matrices.items()
    new = lib.next_masks(matrices, values, masks, lib.Pruning(pattern=(2, 4), unit=unit))[name]
    score = values[name].abs()
    if unit == "element" and one.components:
        score = values[name].double().square().sum(0, keepdim=True).expand_as(score)
    score, kept = (t.movedim(one.in_axis, -1).reshape(-1, 4).tolist() for t in (score, new))
    for row, keep in zip(score, kept, strict=True):
        assert {i for i, k in enumerate(keep) if not k} == dropped(row, [True] * 4, 2)


def test_random_scores_have_their_own_generator():
    matrices = lib.prunable(nn.Linear(9, 9))
    before = torch.get_rng_state()
    drawn = [lib.random_values(matrices, *number)["weight"] for number in ((1, 2), (1, 2), (2, 2), (2, 1))]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[3])  # seed and step are not interchangeable


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_pruned_values_become_zero_even_if_infinite(dtype):
    weight = nn.Parameter(torch.tensor([[1.5, float("inf"), float("nan")], [-2.0, 3.0, -0.0]]).to(dtype))
    mask = torch.tensor([[True, False, False], [True, False, False]])
    version = weight._version
    lib.clear_bits(weight, lib.bit_mask(mask, weight))
    assert weight.tolist() == [[1.5, 0.0, 0.0], [-2.0, 0.0, 0.0]]
    assert not torch.view_as_real(weight.detach().to(torch.complex64)).flatten().signbit()[[2, 4, 8, 10]].any()
    assert weight._version > version, "the cached matrix of a layer is invalidated"


TEXT = {"vocab_size": 20, "max_length": 8}
NETWORKS = {
    "vit(dim=32, depth=1)": {"in_channels": 1, "image_size": 8, "num_classes": 3},
    "transformer_xl(dim=32, depth=1, heads=2, ffn=32)": TEXT,
    "lstm(dim=32, hidden=32)": TEXT | {"num_classes": 4, "pair": False},
    "decomposable_attention(dim=32)": TEXT | {"num_classes": 4, "pair": True},
}


@pytest.mark.parametrize("spec", NETWORKS)
@pytest.mark.parametrize("algebra", ["real", "phm-4"])
def test_only_vectors_and_tables_are_not_prunable(spec, algebra):
    net = zoo.backbone(spec, algebra, **NETWORKS[spec])
    matrices = lib.prunable(net)
    for name, parameter in net.named_parameters():
        is_vector = parameter.ndim < 2 or name.endswith((".u", ".v"))
        is_table = any(word in name for word in ("table", "pos", "embedding", "cls", "structure")) and "projection" not in name
        assert (name in matrices) != (is_vector or is_table), name
    pruning = lib.Pruning(0.5, scope="global", unit="element")
    new = lib.next_masks(matrices, {name: one.parameter for name, one in matrices.items()}, lib.full_masks(matrices), pruning)
    assert 0.4 < lib.remaining(new) / lib.remaining(lib.full_masks(matrices)) < 0.6, "elements and numbers are ranked alike"
