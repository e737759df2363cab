"""Layouts of attention modules and gated units consist of whole elements; projection of real networks and its errors."""

import re

import pytest
import timm
import torch
from timm import layers as parts
from timm.models import cait, convit, fastvit
from torch import nn

import zoo
from tests.errors import raises
from tests.networks import NETWORKS, build, inputs
from zoo.algebras import algebra, reals
from zoo.conversion import convert, replacement, survey, transfer
from zoo.conversion.attention_layout import MatrixLayout
from zoo.conversion.replacement import build_layer
from zoo.conversion.transfer import summary
from zoo.nn import Layers
from zoo.nn.weight import Weight

LAYERS = Layers("quaternion")


def look(name, layers=LAYERS):
    with torch.device("meta"):
        model = timm.create_model(name)
    return survey(model, layers)


def times(x, q):
    """Multiply vectors [..., C] by a quaternion from the right."""
    return algebra("quaternion").double()(x, q.repeat_interleave(x.shape[-1] // 4).expand_as(x))


def error_of(target, sizes, blocks):
    """Return the difference of f(x q) and f(x) q, where each of the vectors with these sizes is multiplied by q."""
    torch.manual_seed(0)
    layer = build_layer(target._replace(module=real_twin(target.module), blocks=blocks), LAYERS).double()
    q, x = torch.randn(4, dtype=torch.float64), torch.randn(target.channels[0], dtype=torch.float64)
    with torch.no_grad():
        weight = layer.weight.flatten(1) if max(layer.weight.shape[2:], default=1) == 1 else layer.weight[..., 0, 0]
        y, turned = weight @ x, weight @ times(x, q)
    pairs = zip(turned[: sum(sizes)].split(sizes), y[: sum(sizes)].split(sizes), strict=True)
    return max((one - times(other, q)).abs().max().item() for one, other in pairs)


def real_twin(module):
    """Return a layer of a model on the meta device with memory."""
    return module.to_empty(device="cpu")


# A model, its matrix, and the sizes of the first vectors into which timm splits the output. A value that is longer than a key
# counts as several vectors of the key's size.
WRITTEN = [
    ("convit_tiny", "attn.qk", [48] * 8),
    ("efficientformer_l1", "token_mixer.qkv", [32] * 48),
    ("levit_128s", "attn.qkv.linear", [16] * 16),
    ("efficientvit_b0", "main.qkv.conv", [16] * 12),
    ("mobilenetv4_hybrid_medium", "attn.(query|key|value).proj", [64]),
    ("swin_tiny_patch4_window7_224", "attn.qkv", [32] * 9),
    ("eva02_base_patch14_224", "attn.[qkv]_proj", [64] * 12),
    ("mambaout_femto", "blocks.0.fc1", [16] * 16),
    ("iformer_t", "v_gate.c", [128] * 2),
    ("vit_dpwee_patch16_reg1_gap_256", "in_proj", [32] * 64),
    ("skresnet18", "attn.fc_select", [64] * 2),
]


@pytest.mark.parametrize(("model", "matrix", "sizes"), WRITTEN, ids=lambda value: value if isinstance(value, str) else "")
def test_every_vector_consists_of_whole_elements(model, matrix, sizes):
    targets, _ = look(model)
    matching = [t for t in targets if re.search(matrix.replace(".", r"\.") + "$", t.name)]
    assert matching
    assert error_of(matching[0], sizes, matching[0].blocks) < 1e-12
    if len(sizes) > 1:
        assert error_of(matching[0], sizes, (1, 1)) > 0.1, "the control"


# Attention with f(x q) = f(x) q for a unit quaternion q: the logits are unchanged, and the values are multiplied by q.
WHOLE = {
    "Attention": lambda: parts.Attention(32, 2, gated=False),
    "Attention of large heads": lambda: parts.Attention(32, 2, attn_head_dim=8),
    "AttentionRope": lambda: parts.AttentionRope(32, 4, num_kv_heads=2, qkv_fused=False),
    "DiffAttention": lambda: parts.DiffAttention(32, 2),
    "MultiQueryAttention2d": lambda: nn.Sequential(parts.MultiQueryAttention2d(32, num_heads=2, key_dim=8, value_dim=16)),
    "ClassAttn": lambda: cait.ClassAttn(32, 2),
    "GPSA": lambda: convit.GPSA(32, 2),
    "FastViT": lambda: fastvit.Attention(32, head_dim=16),
}


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("has_layout", [True, False], ids=["whole", "control"])
def test_attention_over_quaternions_commutes_with_multiplication(kind, has_layout, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(WHOLE[kind]()).double()
    if not has_layout:
        monkeypatch.setattr(replacement, "matrix_layout", lambda *_: MatrixLayout())
        monkeypatch.setattr(replacement, "obstacle", lambda target, *_: "small" if min(target.channels) < 8 else None)
    convert(model, "quaternion").eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.zero_() if "bias" in name and "table" not in name else None
    q = torch.randn(4, dtype=torch.float64)
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    turned = times(x, q / q.norm())
    run = (lambda v: model(v.mT.unflatten(-1, (3, 3))).flatten(2).mT) if "2d" in kind or kind == "FastViT" else model
    error = (run(turned) - times(run(x), q / q.norm())).abs().max()
    assert (error < 1e-9) == has_layout, error


@pytest.mark.parametrize(
    ("model", "matrix", "reason"),
    [
        ("botnet26t_256", "self_attn.qkv", "the layout of BottleneckAttn.qkv is not known"),
        ("efficientvit_b0", "aggreg.0.1", "the layout of LiteMLA.aggreg is not known"),
        ("efficientvit_b0", "aggreg.0.0", "depthwise"),
        ("gmlp_ti16_224", "gate.proj", "its initialization is an identity, which new weights are not"),
        ("shvit_s1", "mixer.m.qkv.c", "the layout of SHSA.qkv is not known"),
    ],
)
def test_matrices_with_an_unknown_layout_stay_real(model, matrix, reason):
    _, real = look(model)
    assert {why for name, why in real.items() if name.endswith("." + matrix)} == {reason}


class Own(nn.Module):
    """An attention module of a third party."""

    def __init__(self, heads="num_heads", **matrices):
        super().__init__()
        setattr(self, heads, 4)
        for name, matrix in matrices.items():
            self.add_module(name, matrix)


def blocks_of(owner):
    targets, real = survey(nn.ModuleDict({"attn": owner, "other": nn.Linear(32, 32)}), LAYERS)
    return {t.name.removeprefix("attn."): t.blocks for t in targets} | {n.removeprefix("attn."): why for n, why in real.items()}


@pytest.mark.parametrize("heads", ["num_heads", "heads", "n_head"])
def test_the_layout_of_any_attention_follows_from_names(heads):
    class Sub(Own):
        pass

    kinds = {"q_proj": 32, "kv": 64, "wv": 32, "o_proj": 32, "mix": 32}
    layouts = blocks_of(Sub(heads, **{name: nn.Linear(32, size) for name, size in kinds.items()}))
    assert layouts == {
        "q_proj": (1, 4),
        "kv": (1, 8),
        "wv": (1, 4),
        "o_proj": (4, 1),
        "mix": "the layout of Sub.mix is not known",
        "other": (1, 1),
    }


def test_unknown_layouts():
    uneven = blocks_of(Own(qkv=nn.Linear(32, 40), proj=nn.Linear(32, 32)))
    assert uneven["qkv"] == "the layout of Own.qkv is not known"
    two = blocks_of(Own(q=nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)), proj=nn.Linear(32, 32)))
    assert two["q.0"] == two["q.1"] == "the layout of Own.q is not known"
    handed_out = blocks_of(Own(q=nn.Linear(32, 32), v=nn.Linear(32, 32)))
    assert handed_out == {"q": (1, 4), "v": "the layout of Own.v is not known", "other": (1, 1)}


def test_a_block_with_a_number_of_heads_is_not_attention():
    block = Own(attn=parts.Attention(32, 4), mlp=parts.Mlp(32, 64))
    assert blocks_of(block)["mlp.fc1"] == (1, 1)


def test_gated_units():
    class Unit(parts.GluMlp):
        pass

    class MyGatedUnit(nn.Module):
        def __init__(self):
            super().__init__()
            self.both, self.down = nn.Linear(32, 64), nn.Linear(32, 32)

    assert blocks_of(Unit(32, 64)) == {"fc1": (1, 2), "fc2": (1, 1), "other": (1, 1)}
    assert set(blocks_of(parts.SwiGLU(32, 64)).values()) == {(1, 1)}
    assert blocks_of(MyGatedUnit())["both"] == "the layout of MyGatedUnit.both is not known"


def test_a_shared_matrix_with_two_layouts_stays_real():
    shared = nn.Linear(32, 32)
    net = nn.ModuleDict({"a": Own(q=shared), "b": shared, "c": nn.Linear(32, 32)})
    assert survey(net, LAYERS)[1] == {"a.q": "a.q and b split it differently"}


def test_nothing_to_convert():
    net = nn.Sequential(*(nn.Linear(1, 1) for _ in range(3)), nn.Bilinear(8, 8, 8))
    with raises("invalid", "(3); Bilinear is not supported (1)"):
        survey(net, LAYERS)


_, SIZES = NETWORKS["vit"]


def over_the_reals(spec, net, **sizes):
    """Return the real network that computes the same as a network over an algebra."""
    twin = zoo.backbone(spec, reals(), **sizes)
    theirs = net.state_dict()
    for name, value in twin.state_dict().items():
        if name in theirs and theirs[name].shape == value.shape:
            value.copy_(theirs[name])
    for name, module in twin.named_modules():
        if isinstance(module, Weight):
            layer = name.removesuffix(".weight_module")
            weight = net.get_submodule(layer).weight if name != layer else net.get_submodule(name)()
            module.components.data.copy_(weight.detach())
    return twin


@pytest.mark.parametrize("name", NETWORKS)
def test_the_projection_of_a_hypercomplex_network_is_exact(name):
    (spec, sizes), product, x = NETWORKS[name], algebra("quaternion"), inputs(name, 2)
    net = build(name, "quaternion")
    twin, again = over_the_reals(spec, net, **sizes).eval(), zoo.backbone(spec, product, **sizes).eval()
    rows = transfer(twin, again, product)
    assert max(row.error for row in rows) < 1e-6
    with torch.no_grad():
        expected = net(*x)
        if "product" not in spec and not sizes.get("pair") and "hermitian" not in spec:  # these multiply features too
            torch.testing.assert_close(twin(*x), expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(again(*x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spec", ["octonion", "phm-4", "phm(n=4, shared=true)", "phm(n=4, rank=8)"])
def test_the_error_is_that_of_the_matrices(spec):
    real, product = build("vit", reals()), algebra(spec)
    net = build("vit", product)
    rows = transfer(real, net, product)
    assert len(rows) == 4
    for row in rows:
        assert 0 < row.error < 1
        matrix = dict(real.named_modules())[f"{row.layer}.weight_module"]().detach()
        ours = dict(net.named_modules())[f"{row.layer}.weight_module"]().detach()
        assert float((matrix - ours).norm() / matrix.norm()) == pytest.approx(row.error, rel=1e-4)
    totals = summary(rows)
    assert totals["worst"] == max(row.error for row in rows)
    assert totals["mean"] == pytest.approx(sum(row.error for row in rows) / 4)


def test_tensors_other_than_hypercomplex_matrices_are_copied():
    real, product = build("vit", reals()), algebra("quaternion")
    for parameter in real.parameters():
        nn.init.normal_(parameter)
    net = build("vit", product)
    transfer(real, net, product)
    theirs = {name.replace(".weight_module.components", ".weight"): value for name, value in real.state_dict().items()}
    same = [
        name for name, value in net.state_dict().items() if "weight_module" not in name and torch.equal(theirs[name], value)
    ]
    assert {"pos_embed", "cls_token", "patch_embed.proj.weight", "head.weight", "blocks.0.norm1.weight"} <= {*same}
    assert len(same) == sum("weight_module" not in name for name in net.state_dict())


def test_random_matrices_have_the_error_of_matrices_without_structure():
    torch.manual_seed(0)
    model = convert(nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 256)), "quaternion", weights="project")
    for row in model.projections:
        assert row.error == pytest.approx(row.unstructured, rel=0.02)
        assert row.unstructured == pytest.approx(0.75**0.5)
    assert convert(nn.Sequential(nn.Linear(8, 8)), "quaternion").projections == []


def test_a_layer_without_a_counterpart_is_named():
    real, product = build("vit", reals()), algebra("quaternion")
    for spec, values in (
        ("vit(dim=32, depth=2, heads=2)", ("'blocks.1.attn.qkv'", [96, 32])),
        ("vit(dim=16, depth=1, heads=2)", ("'blocks.0.attn.qkv'", [48, 16], [96, 32])),
    ):
        net = zoo.backbone(spec, product, **SIZES)
        before = {name: value.clone() for name, value in net.state_dict().items()}
        with raises("mismatch", *values):
            transfer(real, net, product)
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
