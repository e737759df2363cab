"""Adapters over algebras: their definition, memory, targets, and merging, without PEFT."""

import copy

import pytest
import timm
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import zoo
from tests.errors import raises
from zoo.conversion.adapters import AdaptedLayer, Rule, Sizes, Update, add_update

ALGEBRAS = ["real", "quaternion", "octonion", "phm(n=4)", "phm(n=4, terms=1)", "clifford(p=1, q=1)"]
LAYERS = {
    "linear": (lambda: nn.Linear(16, 24), (5, 16)),
    "conv1d": (lambda: nn.Conv1d(16, 24, 3, stride=2, padding=1), (2, 16, 9)),
    "conv2d": (lambda: nn.Conv2d(16, 24, (3, 2), dilation=2, padding=(1, 2)), (2, 16, 7, 8)),
    "conv3d": (lambda: nn.Conv3d(16, 16, 3, padding="same"), (1, 16, 3, 4, 5)),
    "ours": (lambda: zoo.nn.Linear(16, 24, algebra="quaternion"), (2, 3, 16)),
    "our conv": (lambda: zoo.nn.Conv2d(16, 24, 3, algebra="quaternion", padding=1), (2, 16, 4, 4)),
}


def trained(layer, spec, **options):
    """Return an adapted layer in float64 whose update is not zero."""
    torch.manual_seed(0)
    adapted = zoo.adapt(layer.double(), spec, targets=[""], **options)
    for parameter in (*adapted.update.parameters(recurse=False), *adapted.update.rule.parameters()):
        nn.init.normal_(parameter)
    return adapted


@pytest.mark.parametrize("channels", ["component", "element"])
@pytest.mark.parametrize("block_rank", [0, 2])
@pytest.mark.parametrize("spec", ALGEBRAS)
@pytest.mark.parametrize("kind", LAYERS)
def test_an_update_is_that_of_its_matrix(kind, spec, block_rank, channels):
    make, shape = LAYERS[kind]
    base = make().double()
    adapted = trained(copy.deepcopy(base), spec, block_rank=block_rank, channels=channels, alpha=0.5)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    options = {key: getattr(base, key) for key in ("stride", "padding", "dilation") if hasattr(base, key)}
    product = nn.functional.linear if not options else getattr(nn.functional, f"conv{base.weight.dim() - 2}d")
    expected = product(x, base.weight.detach() + adapted.update.matrix(), base.bias, **options)
    torch.testing.assert_close(adapted(x), expected)
    torch.testing.assert_close(adapted.weight, base.weight + adapted.update.matrix())
    seed = torch.randn_like(expected)
    parameters = [x, *adapted.update.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(adapted(x), parameters, seed), torch.autograd.grad(expected, parameters, seed), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("spec", "rank", "weights"), [("real", 2, 1024), ("quaternion", 32, 1024), ("octonion", 128, 1024)])
def test_the_rank_of_an_update(spec, rank, weights):
    adapted = trained(nn.Linear(256, 256), spec, block_rank=2)
    assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == weights
    assert int(torch.linalg.matrix_rank(adapted.update.matrix())) == rank


def test_the_order_of_channels():
    adapted = trained(nn.Linear(8, 8), "complex", block_rank=0, channels="element")
    w = adapted.update.full  # [2, 4, 4]
    blocks = adapted.update.matrix().view(4, 2, 4, 2)
    torch.testing.assert_close(blocks[:, 0, :, 0], w[0])
    torch.testing.assert_close(blocks[:, 1, :, 0], w[1])
    torch.testing.assert_close(blocks[:, 0, :, 1], -w[1])


class Largest(TorchDispatchMode):
    """Records the largest tensor that an operator returns."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            self.size = max(self.size, tensor.numel() if isinstance(tensor, torch.Tensor) else 0)
        return out


@pytest.mark.parametrize("spec", ["real", "octonion", "phm(n=4)"])
@pytest.mark.parametrize("layer", [nn.Linear(256, 256), nn.Conv2d(64, 64, 3)], ids=["linear", "convolution"])
def test_training_never_builds_the_update(layer, spec):
    adapted = zoo.adapt(layer, spec, targets=[""], block_rank=2)
    x = torch.randn(4, *((256,) if isinstance(layer, nn.Linear) else (64, 3, 3)))
    with Largest() as largest:
        adapted.update(x).square().sum().backward()
    assert largest.size < layer.weight.numel() // 4
    with Largest() as largest:
        adapted.update.matrix()
    assert largest.size >= layer.weight.numel()


def test_a_timm_network_is_adapted_trained_and_folded():
    torch.manual_seed(0)
    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2, "num_classes": 3}
    net = timm.create_model("vit_tiny_patch16_224", **sizes).eval()
    x, before = torch.randn(2, 3, 16, 16), copy.deepcopy(net)
    assert zoo.adapt(net, "phm(n=4)", block_rank=2) is net
    assert torch.equal(net(x), before(x))
    adapted = {name for name, module in net.named_modules() if isinstance(module, AdaptedLayer)}
    assert adapted == {f"blocks.0.{name}" for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")}
    trainable = {name for name, p in net.named_parameters() if p.requires_grad}
    assert all(".update." in name for name in trainable)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        net(x).square().sum().backward()
        optimizer.step()
    assert {name for name, p in net.named_parameters() if p.grad is not None} == trainable
    assert not torch.allclose(net(x), before(x))
    folded = zoo.fold(net)
    torch.testing.assert_close(folded(x), net(x))
    assert folded.state_dict().keys() == before.state_dict().keys()
    changed = {name for name, value in folded.state_dict().items() if not torch.equal(value, before.state_dict()[name])}
    assert changed == {f"{name}.weight" for name in adapted}


def test_a_learned_product_may_be_shared():
    for shared in (True, False):
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        zoo.adapt(net, f"phm(n=4, shared={shared})", block_rank=1)
        rules = {id(module) for module in net.modules() if isinstance(module, Rule)}
        assert len(rules) == 2 - shared


def test_modules_that_read_the_matrices_of_their_layers():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).eval()
    zoo.adapt(layer, "quaternion", block_rank=1)
    assert not isinstance(layer.self_attn.out_proj, AdaptedLayer)
    nn.init.normal_(layer.linear1.update.up)
    x = torch.randn(2, 3, 16)
    expected = layer(x)
    with torch.no_grad():  # torch's fast path
        torch.testing.assert_close(layer(x), expected)


def test_shared_layers_and_parameters():
    shared = nn.Linear(8, 8, bias=False)
    net = nn.ModuleDict({"a": shared, "b": shared, "tied": nn.Linear(8, 8, bias=False)})
    net["tied"].weight = shared.weight
    zoo.adapt(net, "complex", targets=["a"], block_rank=1)
    assert net["a"] is net["b"]
    nn.init.normal_(net["a"].update.up)
    folded = zoo.fold(net)
    assert folded["a"] is folded["b"]
    assert torch.equal(folded["tied"].weight, shared.weight)
    assert not torch.equal(folded["a"].weight, shared.weight)


def test_an_update_merges_into_components():
    torch.manual_seed(0)
    layer = zoo.nn.Linear(8, 12, algebra="quaternion", blocks=(1, 3)).double()
    before, change = layer.weight.clone(), torch.randn(4, 3, 2, dtype=torch.float64)
    other = zoo.nn.Linear(8, 12, algebra="quaternion", blocks=(1, 3)).double()
    with torch.no_grad():
        other.components.copy_(change)
    add_update(layer, other.weight)
    torch.testing.assert_close(torch.Tensor(layer.weight), torch.Tensor(before + other.weight))
    with raises("unsupported", "quaternion"):
        add_update(layer, torch.randn(12, 8, dtype=torch.float64))


def test_invalid_adapters():
    net = nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 6), nn.LayerNorm(6), nn.Conv2d(8, 8, 3, groups=2))
    for options, code, words in (
        ({"targets": ["missing*"]}, "unknown", "missing*"),
        ({"targets": ["1"]}, "invalid", "layer '1': n=4 does not divide"),
        ({"targets": ["0"], "block_rank": 4}, "invalid", "block_rank=4"),
        ({"targets": ["0"], "block_rank": -1}, "invalid", "block_rank=-1"),
        ({"targets": ["2"]}, "unsupported", "LayerNorm"),
        ({"targets": ["3"]}, "unsupported", "groups=2"),
        ({"targets": ["0"], "channels": "rows"}, "unknown", "rows"),
    ):
        before = copy.deepcopy(net)
        with raises(code, words):
            zoo.adapt(net, "quaternion", **{"block_rank": 1} | options)
        assert str(net) == str(before)
        assert all(p.requires_grad for p in net.parameters())
    with raises("unsupported", "does not divide"):
        zoo.adapt(nn.Sequential(nn.Linear(3, 3)), "quaternion")
    with raises("unsupported", "rank"):
        zoo.adapt(net, "phm(n=4, rank=5)")
    with raises("invalid", "zoo.fold"):
        zoo.adapt(zoo.adapt(net, "quaternion", targets=["0"], block_rank=1), "quaternion")
    update = Update(Rule("complex"), Sizes(8, 8), 2)
    with raises("mismatch", "up", [2, 4, 2], [2, 8, 2]):
        Update(Rule("complex"), Sizes(16, 16), 2).load_state_dict({"up": update.up.data}, strict=False)
