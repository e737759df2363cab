"""Conversion of networks of torch and timm."""

import copy
import re
from pathlib import Path

import pytest
import timm
import torch
from torch import nn
from torch.nn.utils import prune

import zoo
from tests.errors import raises
from zoo.conversion import Conversion, convert
from zoo.nn import Layers, Linear


@pytest.fixture(scope="module")
def resnet():
    torch.manual_seed(0)
    return timm.create_model("resnet18", num_classes=10)


@pytest.fixture(scope="module")
def vit():
    torch.manual_seed(0)
    return small_vit()


def small_vit(**options):
    shape = {"img_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}
    return timm.create_model("vit_tiny_patch16_224", **shape | options)


def transformer(**options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def compare(model, changed, x, **options):
    """Compare outputs and input gradients in train and in eval mode."""
    for mode in (True, False):
        grads, outputs = [], []
        for net in (copy.deepcopy(model).train(mode), copy.deepcopy(changed).train(mode)):
            seen = x.clone().requires_grad_()
            torch.manual_seed(1)
            outputs.append(net(seen))
            grads.append(torch.autograd.grad(outputs[-1].square().sum(), seen)[0])
        torch.testing.assert_close(*outputs, **options)
        torch.testing.assert_close(*grads, **options)
    with torch.no_grad():  # Without gradients torch's attention takes its fast path.
        torch.testing.assert_close(copy.deepcopy(changed).eval()(x), copy.deepcopy(model).eval()(x), **options)


@pytest.mark.parametrize(
    ("build", "shape", "count"),
    [
        (lambda: small_vit(), (3, 3, 16, 16), 8),
        (lambda: transformer(), (3, 6, 32), 8),  # attention's input and output projections, and two matrices of the MLP
        (lambda: transformer(bias=False), (3, 6, 32), 8),
    ],
)
def test_a_projection_onto_the_reals_is_the_identity(build, shape, count):
    model = build()
    changed = convert(copy.deepcopy(model), "real", weights="project")
    assert len(changed.conversion.converted) == count
    compare(model, changed, torch.randn(shape))


def test_the_projection_of_expanded_quaternions_is_exact(vit):
    hyper = convert(copy.deepcopy(vit), "quaternion")
    for module in hyper.modules():
        if isinstance(module, Linear):
            nn.init.normal_(module.bias)
    expanded = copy.deepcopy(vit)
    state = {name: p for name, p in hyper.state_dict().items() if not name.endswith("components")}
    state |= {f"{name}.weight": hyper.get_submodule(name).weight for name in hyper.conversion.converted}
    expanded.load_state_dict(state)
    x = torch.randn(3, 3, 16, 16)
    compare(hyper, expanded, x)
    again = convert(copy.deepcopy(expanded), "quaternion", weights="project")
    compare(hyper, again, x)
    for (name, ours), theirs in zip(hyper.state_dict().items(), again.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("build", [small_vit, transformer])
def test_every_head_of_q_k_and_v_consists_of_whole_elements(build):
    changed = convert(build(), "quaternion")
    name = next(n for n in changed.conversion.converted if n.endswith(("qkv", "self_attn")))
    module = changed.get_submodule(name)
    weight = module.weight_module if isinstance(module, Linear) else module.in_proj
    matrix = copy.deepcopy(weight).double()()
    product, heads = weight.algebra.double(), weight.out.blocks
    x, q = torch.randn(3, 32, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    size = weight.out.size
    before = product(x, q.repeat_interleave(8).expand_as(x)) @ matrix.T
    after = [product(head, q.repeat_interleave(size // 4).expand_as(head)) for head in (x @ matrix.T).split(size, -1)]
    assert heads == (6 if isinstance(module, Linear) else 12)
    torch.testing.assert_close(before, torch.cat(after, -1))


def test_weights_that_torch_reads_directly_are_trained():
    changed = convert(transformer(), "quaternion")
    changed(torch.randn(2, 5, 32)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in changed.parameters())
    assert not any("in_proj_weight" in name for name in changed.state_dict())
    twin = convert(transformer(), "quaternion")
    twin.load_state_dict(changed.state_dict())
    x = torch.randn(2, 5, 32)
    assert torch.equal(twin.eval()(x), changed.eval()(x))


def test_skip_patterns():
    net = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), nn.Linear(8, 8))
    for skip in (["1.*"], "1.*"):
        changed = convert(copy.deepcopy(net), "complex", skip=skip)
        assert changed.conversion == Conversion(("0", "2"), {"1.0": "skipped", "1.1": "skipped"})
    with raises("unknown", "'9'"):
        convert(net, "complex", skip=["9"])


@pytest.mark.parametrize("weights", ["fresh", "project"])
def test_a_single_layer_is_returned_converted(weights):
    for build, x in (
        (lambda: nn.Linear(8, 12), torch.randn(3, 8)),
        (lambda: nn.Conv1d(8, 12, 3, stride=2), torch.randn(3, 8, 9)),
        (lambda: nn.Conv2d(8, 12, 3, padding=1, bias=False), torch.randn(3, 8, 5, 5)),
    ):
        layer = build()
        changed = convert(layer, "quaternion", weights=weights)
        assert changed.algebra.n == 4
        assert changed.conversion.converted == ("",)
        assert changed(x).shape == layer(x).shape
        same = convert(layer, "real", weights="project")
        torch.testing.assert_close(same(x), layer(x))
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    changed = convert(attention, "quaternion", weights=weights)
    assert changed.conversion.converted == ("", "out_proj")
    assert changed(*[torch.randn(2, 5, 16)] * 3)[0].shape == (2, 5, 16)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}, {"batch_first": True}])
@pytest.mark.parametrize("cross", [False, True])
def test_converted_attention_equals_that_of_torch(options, cross):
    torch.manual_seed(0)
    model = nn.ModuleDict({"attn": nn.MultiheadAttention(16, 4, **options)})
    expanded = convert(copy.deepcopy(model), "quaternion", weights="project")["attn"]
    theirs = model["attn"]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(expanded.in_proj_weight)
        theirs.out_proj.weight.copy_(expanded.out_proj.weight)
    q = torch.randn(5, 5, 16)
    k = torch.randn(5, 5, 16) if cross else q
    padding, mask = torch.zeros(5, 5, dtype=torch.bool), torch.ones(5, 5, dtype=torch.bool).triu(1)
    padding[:, 4:] = True
    for mode in (True, False):
        ours, other = expanded.train(mode), theirs.train(mode)
        for arguments in (
            {},
            {"need_weights": False},
            {"key_padding_mask": padding, "average_attn_weights": False},
            {"attn_mask": mask, "is_causal": True, "need_weights": False},
            {"attn_mask": torch.randn(5, 5), "key_padding_mask": padding.float()},
        ):
            torch.testing.assert_close(ours(q, k, k, **arguments), other(q, k, k, **arguments))
    torch.testing.assert_close(ours(q[0], k[0], k[0]), other(q[0], k[0], k[0]))


def test_scope_chooses_roles(vit):
    changed = convert(copy.deepcopy(vit), "quaternion", scope="attention")
    assert {name.split(".")[2] for name in changed.conversion.converted} == {"attn"}
    assert changed.conversion.real["blocks.0.mlp.fc1"] == "role ffn is outside the scope attention"
    same = convert(copy.deepcopy(vit), Layers("quaternion", scope="attention"))
    assert same.conversion == changed.conversion


def test_grouped_convolutions_stay_real_however_the_weights_came():
    net = nn.Sequential(nn.Conv2d(32, 32, 3, groups=4), nn.Conv2d(24, 24, 3, groups=4), nn.Conv2d(24, 8, 1))
    changed = convert(copy.deepcopy(net), "quaternion")
    real = dict.fromkeys(("0", "1"), "groups split the algebra elements")
    assert changed.conversion == Conversion(("2",), real)
    assert convert(copy.deepcopy(net), "quaternion", weights="project").conversion == changed.conversion
    same = convert(copy.deepcopy(net), "real", weights="project")
    x = torch.randn(2, 32, 6, 6)
    torch.testing.assert_close(same[0](x), net[0](x))


def test_subclasses_with_a_forward_of_their_own_stay_real():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    class Renamed(nn.Linear):
        pass

    class Standardized(nn.Conv2d):
        def _conv_forward(self, x, weight, bias):
            return super()._conv_forward(x, weight - weight.mean(), bias)

    net = nn.Sequential(Scaled(8, 8), Renamed(8, 8), Standardized(8, 8, 1))
    changed = convert(net, "complex")
    assert changed.conversion.converted == ("1",)
    assert changed.conversion.real == {n: f"{k} overrides forward" for n, k in (("0", "Scaled"), ("2", "Standardized"))}


def test_reasons_to_stay_real():
    changed = convert(nn.Sequential(nn.Linear(8, 8), nn.LSTM(8, 8, proj_size=4), nn.Bilinear(8, 8, 8)), "complex")
    assert set(changed.conversion.real) == {"1", "2"}
    changed = convert(nn.Sequential(nn.Linear(1, 1), nn.Linear(16, 2), nn.Linear(64, 64)), "octonion")
    assert changed.conversion.converted == ("1", "2")
    assert "padding 1 -> 1 channels to n = 8 costs more weights" in changed.conversion.real["0"]
    net = nn.ModuleDict({"cross": nn.MultiheadAttention(16, 2, kdim=8, vdim=8)})
    assert convert(net, "complex").conversion.real["cross"] == "queries, keys and values have different sizes"


TORCH_LAYERS = {
    "lstm": (lambda: nn.LSTM(8, 12, 2, bidirectional=True), (5, 2, 8)),
    "gru": (lambda: nn.GRU(8, 12, batch_first=True), (2, 5, 8)),
    "conv3d": (lambda: nn.Conv3d(8, 12, 3, padding=1), (2, 8, 4, 4, 4)),
    "transposed1d": (lambda: nn.ConvTranspose1d(8, 12, 3, stride=2, output_padding=1), (2, 8, 5)),
    "transposed2d": (lambda: nn.ConvTranspose2d(8, 12, (3, 2), stride=2, bias=False), (2, 8, 5, 4)),
    "transposed3d": (lambda: nn.ConvTranspose3d(8, 12, 2), (2, 8, 3, 3, 3)),
}


@pytest.mark.parametrize("name", TORCH_LAYERS)
def test_every_layer_of_torch_keeps_its_arguments(name):
    torch.manual_seed(0)
    make, shape = TORCH_LAYERS[name]
    net, x = nn.Sequential(make()).double().eval(), torch.randn(*shape, dtype=torch.float64)
    expected = net(x)
    for parameter in [p for n, p in net.named_parameters() if "weight" in n][:1]:
        parameter.requires_grad_(False)
    same = convert(copy.deepcopy(net), "real", weights="project")
    torch.testing.assert_close(same(x), expected)
    torch.testing.assert_close(zoo.fold(same)(x), expected)
    changed = convert(net, "quaternion")
    assert changed.conversion.converted == ("0",)
    frozen = [n for n, p in changed.named_parameters() if not p.requires_grad]
    assert len(frozen) == 1
    assert frozen[0].endswith("components")
    y = changed(x)
    assert (y[0] if isinstance(y, tuple) else y).shape == (expected[0] if isinstance(expected, tuple) else expected).shape
    row = zoo.report(convert(nn.Sequential(make()), "quaternion")).layers
    assert sum(size.parameters for size in row) < 0.5 * sum(size.real for size in row)


@pytest.mark.parametrize("name", TORCH_LAYERS)
def test_projection_finds_a_layer_over_the_algebra(name):
    torch.manual_seed(0)
    make, shape = TORCH_LAYERS[name]
    layer = convert(make().double(), "quaternion")
    again = convert(zoo.fold(layer), "quaternion", weights="project")
    x = torch.randn(*shape, dtype=torch.float64)
    torch.testing.assert_close(again(x), layer(x))
    assert all(row.error < 1e-12 for row in again.projections)


@pytest.mark.parametrize("weights", ["fresh", "project"])
@pytest.mark.parametrize("spec", ["quaternion", "phm-4"])
def test_biases_are_kept_and_what_was_frozen_stays_frozen(weights, spec):
    net = nn.Sequential(nn.Linear(8, 8), nn.Conv1d(8, 8, 1), nn.TransformerEncoderLayer(8, 2, 16))
    for parameter in (net[0].weight, net[1].bias, net[2].self_attn.in_proj_weight):
        parameter.requires_grad_(False)
    changed = convert(copy.deepcopy(net), spec, weights=weights)
    for new, old in ((changed[0], net[0]), (changed[1], net[1]), (changed[2].linear1, net[2].linear1)):
        assert torch.equal(new.bias, old.bias)
        assert (new.components.requires_grad, new.bias.requires_grad) == (old.weight.requires_grad, old.bias.requires_grad)
    assert not changed[2].self_attn.in_proj.components.requires_grad
    assert not any(p.requires_grad for p in changed[0].algebra.parameters())
    assert all(p.requires_grad for p in changed[1].algebra.parameters())


def test_a_shared_layer_is_replaced_wherever_it_is_used():
    shared, inner = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8))
    changed = convert(nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, inner), "c": inner}), "complex")
    assert changed.conversion.converted == ("a", "b.1.0")
    assert isinstance(changed["a"], Linear)
    assert changed["b"][0] is changed["a"]
    assert changed["c"][0] is changed["b"][1][0]
    assert isinstance(changed["c"][0], Linear)


def test_tied_parameters_stay_tied():
    net = nn.ModuleDict({"table": nn.Embedding(16, 8), "body": nn.Linear(8, 8), "head": nn.Linear(8, 16)})
    net["head"].weight = net["table"].weight
    changed = convert(net, "complex")
    assert changed.conversion == Conversion(("body",), {"head": "another module uses the same parameter"})
    assert changed["head"].weight is changed["table"].weight


def test_layers_with_parametrizations_or_hooks_stay_real():
    names = ("pruned", "spectral", "weight", "watched", "backward", "plain")
    net = nn.ModuleDict({name: nn.Linear(8, 8) for name in names})
    prune.l1_unstructured(net["pruned"], "weight", 0.5)
    nn.utils.parametrizations.spectral_norm(net["spectral"])
    nn.utils.parametrizations.weight_norm(net["weight"])
    net["watched"].register_forward_hook(lambda module, args, y: y + 1)
    net["backward"].register_full_backward_hook(lambda module, before, after: None)
    changed = convert(net, "complex")
    assert changed.conversion == Conversion(("plain",), dict.fromkeys(names[:-1], "has parametrizations or hooks"))
    assert all(changed[name](torch.randn(2, 8)).shape == (2, 8) for name in names)


def test_models_that_cannot_be_converted(vit, resnet):
    for spec in ("quaternion", "real"):
        with raises("invalid", "already has hypercomplex layers"):
            convert(convert(copy.deepcopy(vit), spec), "complex")
    with raises("invalid", "ResNet", "outside the scope attention (19)", "stem (1)"):
        convert(copy.deepcopy(resnet), "quaternion", scope="attention")
    with raises("invalid", "Sequential"):
        convert(nn.Sequential(nn.ReLU()), "complex")
    assert convert(copy.deepcopy(resnet), "real", scope="attention").conversion.converted == ()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype_and_mode_are_preserved(dtype):
    net = nn.Sequential(nn.Linear(8, 8), nn.Conv1d(8, 8, 1)).to(dtype).eval()
    changed = convert(net, "quaternion", weights="project")
    assert {p.dtype for p in changed.parameters()} == {dtype}
    assert not any(m.training for m in changed.modules())
    assert changed[0](torch.randn(2, 8, dtype=dtype)).dtype == dtype


def test_the_examples_of_the_documentation_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    text = (Path(__file__).parents[2] / "docs" / "converting.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, "converting.md", "exec"), {})
    assert capsys.readouterr().out.startswith("['encoder.0']\ntorch.Size([5, 32])\n")
