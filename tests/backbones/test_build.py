"""Networks from specs and from objects, checks without data, weight decay, and learned products that learn from data."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zoo_datasets.vectors import hamilton, rotation

import zoo
from tests.errors import raises
from zoo.algebras import Algebra
from zoo.backbones.build import WIDTHS, backbone, check_spec, count, equal_size, real_twin
from zoo.data import ready
from zoo.nn.weight import Weight
from zoo.registry import Spec
from zoo.tasks.optimization import make_optimizer, undecayed
from zoo.tasks.options import Optimizer

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 3}


def small(layers: zoo.Layers, *, in_channels: int, image_size: int, num_classes: int, dim: int = 8) -> nn.Module:
    return nn.Sequential(nn.Flatten(), layers.linear(in_channels * image_size**2, dim, role="ffn"), nn.Linear(dim, num_classes))


def cyclic(n):
    """The group algebra of the cyclic group of order n."""
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    return Algebra(nn.functional.one_hot((i + j) % n, n).float())


def test_a_factory_and_an_algebra_as_objects():
    net = zoo.backbone(small, cyclic(5), **INFO, classes=("a", "b", "c"))
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    assert net[1].algebra.n == 5
    assert count(real_twin(small, **INFO))["total"] == 64 * 8 + 8 + 8 * 3 + 3


@pytest.mark.parametrize(
    ("spec", "fitting"),
    [
        ("vit", "vit(dim=72, heads=4)"),
        ("transformer", "transformer(dim=144, heads=4)"),
        ("gpt(dim=64)", "gpt(dim=72, heads=2)"),
        ("transformer(positions=rotary, heads=5)", ""),
        ("decomposable_attention", "decomposable_attention(dim=99)"),
    ],
)
def test_invalid_sizes_are_found_without_data_and_the_advice_is_valid(spec, fitting):
    with raises("invalid", "n = 9", fitting):
        check_spec(spec, "phm-9")
    if fitting:
        check_spec(fitting, "phm-9")


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("vit(dim=72, patch=3)", {}),  # tiles images of 96 pixels, not of 32
        ("transformer(pooling=last)", {"scope": "ffn"}),
        ("linear", {}),
        ("gpt(dim=72, heads=4)", {"embedding": "complex_order"}),
    ],
)
def test_options_that_are_valid_for_some_data(spec, options):
    check_spec(spec, "phm-9", **options)


def test_the_stem_and_head_of_an_mlp_are_real():
    real, quaternion = (count(zoo.backbone("mlp(depth=3)", a, in_features=13, out_features=3)) for a in ("real", "quaternion"))
    ends, hidden = 13 * 64 + 64 + 64 * 3 + 3, 3 * 64 * 64
    assert real["total"] == ends + hidden + 3 * 64
    assert quaternion["total"] == ends + hidden // 4 + 3 * 64
    for option, value, code in (("activation", "step", "unknown"), ("dim", 0, "invalid")):
        with raises(code, option, value):
            zoo.backbone(f"mlp({option}={value})", algebra="real", in_features=3, out_features=1)


@pytest.mark.parametrize(
    ("spec", "algebra", "info"),
    [
        ("vit(depth=2)", "quaternion", {"in_channels": 1, "image_size": 8, "num_classes": 10}),
        ("lstm", "complex", {"vocab_size": 20, "max_length": 8, "num_classes": 3}),
        ("gpt(dim=64, depth=2)", "quaternion", {"vocab_size": 20, "max_length": 8}),
    ],
)
def test_equal_size_is_the_nearest_of_all_widths(spec, algebra, info):
    total = count(backbone(spec, zoo.algebra(algebra), **info))["total"]
    narrower, parameters = equal_size(spec, total, **info)
    assert count(backbone(narrower, zoo.algebra("real"), **info))["total"] == parameters
    assert abs(parameters / total - 1) < 0.1
    dim = Spec.parse(narrower).options["dim"]
    for other in (dim - 4, dim + 4):
        widths = {name: round(value * other / dim) for name, value in Spec.parse(narrower).options.items() if name in WIDTHS}
        near = str(Spec(Spec.parse(narrower).name, Spec.parse(narrower).options | widths))
        assert abs(count(backbone(near, zoo.algebra("real"), **info))["total"] - total) >= abs(parameters - total)


def test_a_backbone_without_a_width_has_no_equal_size():
    assert equal_size("timm/resnet18", 1000, in_channels=3, num_classes=10) is None


TOKENS = {"vocab_size": 20, "max_length": 8}
IMAGE = {"in_channels": 1, "image_size": 8, "num_classes": 3}
NETWORKS = {
    "phm": ("lstm(dim=8, hidden=8)", "phm-4", TOKENS | {"num_classes": 3}, "algebra.structure"),
    "phm, shared": ("fasttext(dim=8, hidden=8)", "phm(n=4,shared=true)", TOKENS | {"num_classes": 3}, "algebra.structure"),
    "phm, rank": ("gpt(dim=32, depth=1, heads=2, ffn=32)", "phm(n=4, rank=6)", TOKENS, "algebra.factor_matrices"),
    "u": ("transformer_xl(dim=32, depth=1, heads=2, ffn=32)", "quaternion", TOKENS, "attention.u"),
    "class token": ("vit(dim=32, depth=1)", "quaternion", IMAGE, "cls_token"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_without_gradients_shrinks_only_matrices(name):
    torch.manual_seed(0)
    spec, algebra, info, undecayed_name = NETWORKS[name]
    net = zoo.backbone(spec, algebra, **info)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    before = {key: parameter.clone() for key, parameter in net.named_parameters()}
    make_optimizer(net, Optimizer(lr=0.1, weight_decay=0.5)).step()
    untouched = {key for key, parameter in net.named_parameters() if torch.equal(parameter, before[key])}
    assert any(key.endswith(undecayed_name) for key in untouched)
    matrices = {f"{key}.components" for key, module in net.named_modules() if isinstance(module, Weight)}
    assert matrices
    assert not untouched & matrices
    vectors = {key for key, parameter in net.named_parameters() if parameter.ndim < 2}
    assert untouched == vectors | undecayed(net)
    for key in before.keys() - untouched:
        torch.testing.assert_close(dict(net.named_parameters())[key], 0.95 * before[key])


def learn(data, algebra, steps=600):
    """Train as in configs/papers/phm, but for fewer steps: Adam, batch size 64, and a learning rate that decays to zero."""
    torch.manual_seed(0)
    net = zoo.backbone("linear", algebra, **ready(data).info.model_kwargs)
    x, y = data.splits["train"]
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        F.mse_loss(net(x[rows]), y[rows]).backward()
        optimizer.step()
        schedule.step()
    return net


def squared_error(net, data):
    x, y = data.splits["test"]
    with torch.no_grad():
        return F.mse_loss(net(x), y).item()


def test_a_rotation_is_learned():
    data = ready(rotation())
    net = learn(data, "phm-3")
    assert squared_error(net, data) < 1e-6
    turned = net.weight @ net.weight.T
    torch.testing.assert_close(turned, torch.eye(3), rtol=0, atol=1e-3)


def test_the_learned_rule_is_the_hamilton_product():
    data, product = ready(hamilton()), zoo.algebra("quaternion")
    net = learn(data, "phm-4")
    assert squared_error(net, data) < 1e-6
    # The 4 x 4 matrix of each element of the weight, and the quaternion that generated its data. The basis of the learned rule
    # is arbitrary, so products are compared instead of matrices.
    learned = torch.einsum("ijk,ip->pkj", net.algebra.structure, net.components.flatten(1)).detach()
    true = data.truth[:, :4].reshape(4, 4, 4).flatten(1).T
    assert torch.linalg.matrix_rank(true) == 4  # they span all quaternions
    q, x = torch.randn(50, 4), torch.randn(50, 4)
    coefficients = q @ torch.linalg.pinv(true)  # q = sum_p coefficients_p true_p
    ours = torch.einsum("bp,pkj,bj->bk", coefficients, learned, x)
    torch.testing.assert_close(ours, product(q, x), rtol=0, atol=0.01)


def test_a_fixed_wrong_product_does_not_learn_it():
    data = ready(hamilton())
    assert squared_error(learn(data, "quaternion"), data) < 1e-6
    assert squared_error(learn(data, "clifford(p=1, q=1)"), data) > 1e-2
