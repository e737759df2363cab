"""A pruned network equals the original network with the removed heads, units and channels set to zero."""

from copy import deepcopy
from pathlib import Path
from runpy import run_path

import pytest
import timm
import torch
from torch import nn

import zoo
from tests.errors import raises
from zoo.conversion.attention_layout import NUM_HEADS, num_heads
from zoo.nn import Linear
from zoo.pruning import prune_structure
from zoo.pruning.structured import elements_of, remaining_layout, remove_channels

FOLDER = Path(__file__).parents[2] / "plugins" / "example_dual_numbers"
DUAL = run_path(str(FOLDER / "zoo_dual_numbers.py"))["dual"]
"""An algebra of a third party."""

TEXT = {"vocab_size": 11, "max_length": 7}
IMAGE = {"in_channels": 3, "image_size": 8, "num_classes": 4}
NETS = {
    "vit(dim=64, depth=1, patch=4, representation_size=24)": IMAGE,
    "gpt(dim=64, depth=1, ffn=96, positions=rotary)": TEXT,
    "gpt(dim=64, depth=1, ffn=96, score=product)": TEXT,
    "transformer(dim=64, depth=1, ffn=90)": TEXT | {"num_classes": 3},
    "transformer(dim=64, depth=1, ffn=96)": TEXT | {"seq2seq": True},
    "transformer_xl(dim=64, depth=1, ffn=96)": TEXT,
    "convnet/conv-4(channels=(16, 16, 32, 32), hidden=(24, 24))": IMAGE,
    "convnet/lenet-300-100": IMAGE,
}
ALGEBRAS = ("real", "quaternion", "phm-4", "octonion", "dual")


def build(spec, algebra="quaternion", **info):
    """Return a network whose biases are not zero, and an input."""
    torch.manual_seed(0)
    net = zoo.backbone(spec, DUAL() if algebra == "dual" else algebra, **info).eval()
    for p in net.parameters():
        if p.ndim == 1:
            nn.init.normal_(p)
    if "image_size" in info:
        return net, (torch.randn(2, 3, 8, 8),)
    tokens = torch.randint(1, 11, (2, 7))
    return net, (tokens, tokens.flip(0)) if info.get("seq2seq") else (tokens,)


def masked(net, cuts):
    """Return a copy that sets the removed channels to zero where they are read."""
    net = deepcopy(net)
    modules = dict(net.named_modules())

    def hook(channels):
        def zero(module, args):
            x = args[0]
            axis = 1 if isinstance(module, nn.Conv2d | zoo.nn.Conv2d) else x.ndim - 1
            return x.index_fill(axis, torch.tensor(channels, dtype=torch.long), 0), *args[1:]

        return zero

    for cut in cuts:
        for name, channels in cut.inputs.items():
            modules[name].register_forward_pre_hook(hook(channels))
    return net


@pytest.mark.parametrize("algebra", ALGEBRAS)
@pytest.mark.parametrize("spec", NETS)
def test_the_pruned_network_equals_the_original_with_zeros(spec, algebra):
    before, inputs = build(spec, algebra, **NETS[spec])
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        old = deepcopy(before).to(dtype)
        new, x = deepcopy(old), [t.to(dtype) if t.is_floating_point() else t for t in inputs]
        cuts = prune_structure(new, 0.5, *x)
        with torch.no_grad():
            wanted = masked(old, cuts)(*x)
            assert (new(*x) - wanted).abs().max() <= tolerance * max(1.0, float(wanted.abs().max()))
            assert (new(*x) - old(*x)).abs().max() > 1e-3
    assert {cut.kind for cut in cuts} == (
        {"channels", "units"} if "conv-4" in spec else {"units"} if "lenet" in spec else {"heads", "units"}
    )
    for cut in cuts:
        assert cut.after == pytest.approx(cut.before / 2, abs=8)
        assert 0 < cut.after < cut.before
    assert zoo.count(new)["total"] < 0.75 * zoo.count(old)["total"]


def test_the_residual_stream_and_the_head_are_not_pruned():
    net, x = build("vit(dim=64, depth=1, patch=4, representation_size=24)", **IMAGE)
    shapes = {name: p.shape for name, p in net.named_parameters()}
    prune_structure(net, 0.5, *x)
    changed = {name for name, p in net.named_parameters() if p.shape != shapes[name]}
    attention = {"blocks.0.attn.qkv.bias"} | {f"blocks.0.attn.{name}.weight_module.components" for name in ("qkv", "proj")}
    mlp = {"blocks.0.mlp.fc1.bias"} | {f"blocks.0.mlp.{name}.weight_module.components" for name in ("fc1", "fc2")}
    assert changed == attention | mlp


def test_the_classifier_is_that_of_the_model_and_not_a_name():
    net = nn.Sequential()
    for name, outputs in (("head", 8), ("predict", 3)):
        net.add_module(name, nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, outputs)))
    net.pretrained_cfg = {"classifier": "predict.2"}
    assert [cut.name for cut in prune_structure(net, 0.5, torch.ones(1, 8))] == ["head.0"]


def test_the_smallest_units_are_removed_and_ties_by_position():
    net = nn.Sequential(nn.Linear(1, 6, bias=False), nn.ReLU(), nn.Linear(6, 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[3.0], [1], [1], [0], [1], [2]]))
        net[2].weight.copy_(torch.tensor([[0.0, 1, 1, 9, 1, 0]]))
    (cut,) = prune_structure(net, 0.5, torch.ones(1, 1))  # norms squared: 9, 2, 2, 81, 2, 4
    assert cut.inputs == {"2": [1, 2, 4]}
    assert net[0].weight.flatten().tolist() == [3, 0, 2]


def test_the_head_with_the_smallest_matrices_is_removed():
    net, x = build("gpt(dim=64, depth=1, ffn=64, heads=4)", **TEXT)
    attention = net.blocks[0].attention
    with torch.no_grad():
        w = attention.qkv.components.view(4, 3, 4, -1, 16)  # component, q k v, head, element, input
        w[:, :, 1] *= 1e-3
        attention.proj.components.view(4, 16, 4, -1)[:, :, 1] *= 1e-3
    kept = attention.qkv.components.detach().view(4, 3, 4, -1, 16)[:, :, [0, 2, 3]].clone()
    cut = next(cut for cut in prune_structure(net, 0.25, *x) if cut.kind == "heads")
    assert (cut.before, cut.after, cut.head_dim) == (4, 3, 16)
    assert cut.inputs == {"blocks.0.attention.proj": [*range(16, 32)]}
    assert torch.equal(attention.qkv.components.detach().view(4, 3, 3, -1, 16), kept)
    assert attention.qkv.weight.shape == (144, 64)


class Mixer(nn.Module):
    """Multiplies three vectors of each head, which one matrix writes, number by number."""

    def __init__(self, attribute):
        super().__init__()
        setattr(self, attribute, 4)
        self.joint = Linear(32, 96, algebra="quaternion", blocks=(1, 12))
        self.proj = Linear(32, 32, algebra="quaternion", blocks=(4, 1))

    def forward(self, x):
        first, second, third = self.joint(x).unflatten(-1, (3, num_heads(self), -1)).unbind(-3)
        return self.proj((first * second * third).flatten(-2))


@pytest.mark.parametrize("attribute", NUM_HEADS)
def test_heads_are_found_by_the_layouts_of_the_matrices_not_by_their_names(attribute):
    torch.manual_seed(0)
    net, x = nn.Sequential(Mixer(attribute)), torch.randn(2, 5, 32)
    original = deepcopy(net)
    cuts = prune_structure(net, 0.5, x)
    assert [(cut.kind, cut.before, cut.after) for cut in cuts] == [("heads", 4, 2)]
    assert num_heads(net[0]) == 2
    assert torch.allclose(net(x), masked(original, cuts)(x), atol=1e-6)


def test_units_are_whole_elements():
    net, x = build("convnet/conv-4(channels=(16, 16, 32, 32), hidden=(24, 24))", **IMAGE)
    old = deepcopy(net)
    cuts = {cut.name: cut for cut in prune_structure(net, 0.25, *x)}
    for channels in (cuts["conv1"].inputs["conv2"], cuts["conv2"].inputs["conv3"]):  # conv1 itself is real
        assert len(channels) == 4
        assert len({channel % 4 for channel in channels}) == 1
    assert net.conv1.out_channels == 12
    assert net.fc1.in_features == 4 * net.conv4.out_channels
    kept = sorted({*range(16)} - {*cuts["conv1"].inputs["conv2"]})
    assert torch.equal(net.conv1.weight, old.conv1.weight[kept])
    assert torch.equal(net.conv1.bias, old.conv1.bias[kept])


def test_padded_elements_are_removed_first():
    quaternion = zoo.algebra("quaternion")
    net, x = nn.Sequential(Linear(8, 10, algebra=quaternion), nn.ReLU(), Linear(10, 4, algebra=quaternion)), torch.randn(5, 8)
    with torch.no_grad():
        net[0].weight_module.components[:, 0] = 0  # the smallest, but it is whole: channels 0, 3, 6 and 9
    old = deepcopy(net)
    (cut,) = prune_structure(net, 0.4, x)
    assert (cut.before, cut.after, cut.inputs) == (10, 7, {"2": [1, 4, 7]})
    torch.testing.assert_close(net(x), masked(old, [cut])(x))


def test_a_converted_timm_network():
    torch.manual_seed(0)
    old = timm.create_model("resnet18", num_classes=3).eval()
    zoo.convert(old, "quaternion", skip=["layer[12]*", "conv1"])
    net, x = deepcopy(old), torch.randn(1, 3, 32, 32)
    cuts = prune_structure(net, 0.5, x)
    assert [cut.name for cut in cuts] == [f"layer{i}.{j}.conv1" for i in (1, 2, 3, 4) for j in (0, 1)]
    with torch.no_grad():
        assert (net(x) - masked(old, cuts)(x)).abs().max() < 1e-5
    net.train()
    net(torch.randn(2, 3, 32, 32)).sum().backward()
    assert net.layer4[0].conv1.components.grad.shape == (4, 64, 64, 3, 3)


def test_only_whole_elements_can_be_removed():
    layer = Linear(8, 8, algebra=zoo.algebra("quaternion"), blocks=(1, 2))
    with raises("unsupported", "1 of 8 channels", "n = 4"):
        remove_channels(layer, "inp", [0])
    with raises("unsupported", "1 of 8 channels"):
        remove_channels(layer, "out", [8])
    assert remaining_layout(layer.inp, [*range(8)]) is None
    assert elements_of(zoo.nn.Linear(6, 4, algebra=zoo.algebra("quaternion")).inp) == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize(
    ("net", "ratio", "value"),
    [
        ("gpt", 0.0, "ratio=0.0"),
        ("gpt", 0.001, "ratio=0.001"),
        ("linear", 0.5, "Linear"),
        ("infinite", 0.5, "blocks.0.ffn.0"),
    ],
)
def test_errors(net, ratio, value):
    if net == "linear":
        net, x = nn.Linear(4, 4), (torch.ones(1, 4),)
    else:
        broken = net == "infinite"
        net, x = build("gpt(dim=32, depth=1, ffn=32)", **TEXT)
        if broken:
            nn.init.constant_(net.blocks[0].ffn[0].components, float("inf"))
    with raises("invalid", value):
        prune_structure(net, ratio, *x)


def test_attention_that_fixes_its_heads_elsewhere_is_refused_in_one_line():
    metaformer = timm.models.metaformer
    net = metaformer.MetaFormer(depths=[1], dims=[64], token_mixers=metaformer.Attention, num_classes=3)
    net = zoo.convert(net, "quaternion")
    with raises("unsupported", "MetaFormer does not run with fewer heads"):
        prune_structure(net, 0.5, torch.rand(1, 3, 32, 32))
