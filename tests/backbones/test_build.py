"""Networks from specs and from objects, and checks without data."""

import pytest
import torch
from torch import nn

import zoo
from tests.errors import raises
from zoo import registry
from zoo.algebras import Algebra
from zoo.backbones import build, recipe
from zoo.backbones.build import WIDTHS, backbone, check_fit, check_spec, count, equal_size, real_twin
from zoo.registry import Spec

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


def test_a_factory_with_var_keyword_gets_all_info():
    received = {}
    assert isinstance(zoo.backbone(lambda layers, **info: received.update(info) or nn.Identity(), "real", **INFO), nn.Identity)
    assert received == INFO


def test_a_network_is_returned_unchanged():
    net = nn.Linear(2, 3)
    assert zoo.backbone(net, "quaternion") is net


@pytest.mark.parametrize(("spec", "value"), [(3, "got 3"), (lambda layers: 3, "int")])
def test_invalid_backbones(spec, value):
    with raises("invalid", value):
        zoo.backbone(spec, "real")


@pytest.mark.parametrize(
    ("spec", "fitting"),
    [
        ("vit", "vit(dim=80)"),
        ("gpt", "gpt(dim=140)"),
        ("gpt/nano", "gpt/nano(dim=390)"),
        ("gpt(positions=rotary)", ""),
        ("transformer/base", "transformer/base(dim=520)"),
        ("transformer_xl", "transformer_xl(dim=140)"),
        ("decomposable_attention", "decomposable_attention(dim=100)"),
    ],
)
def test_invalid_sizes_are_found_without_data_and_the_advice_is_valid(spec, fitting):
    with raises("invalid", "n = 5", fitting):
        check_spec(spec, cyclic(5))
    if fitting:
        check_spec(fitting, cyclic(5))


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("vit(dim=80, patch=3)", {}),  # tiles images of 9 pixels
        ("timm/test_vit", {}),
        ("transformer(pooling=last)", {"scope": "ffn"}),
        ("lstm(dim=30)", {}),
        ("linear", {}),
        ("gpt(dim=80, heads=4)", {"embedding": "complex_order"}),
    ],
)
def test_options_that_are_valid_for_some_data(spec, options):
    check_spec(spec, cyclic(5), **options)


@pytest.mark.parametrize(
    ("spec", "options", "code", "value"),
    [
        ("lstm(pooling=median)", {}, "unknown", "median"),
        ("lstm", {"scope": "everything"}, "invalid", "everything"),
        ("lstm", {"init": "zero"}, "unknown", "zero"),
        ("lstm", {"embedding": "nothing"}, "invalid", "nothing"),
        ("timm/resnet18x", {}, "unknown", "resnet18x"),
    ],
)
def test_options_that_are_invalid_for_all_data(spec, options, code, value):
    with raises(code, value):
        check_spec(spec, "quaternion", **options)


def test_networks_that_are_too_large(monkeypatch):
    monkeypatch.setattr(build, "MAX_TENSORS", 8)
    with raises("invalid", "depth"):
        zoo.backbone("mlp(depth=3)", "real", in_features=2, out_features=2)
    monkeypatch.setattr(build, "machine_memory", lambda: 1e5)
    with raises("invalid", "memory"):
        zoo.backbone("mlp(dim=256, depth=1)", "real", in_features=2, out_features=2)


def test_third_party_networks_that_cannot_be_checked_pass():
    @recipe(inputs=("image",))
    def odd(layers, *, in_channels, colours):
        raise AssertionError("is not called")

    @recipe(inputs=("image",))
    def breaks(layers, *, in_channels):
        raise RuntimeError("needs real tensors")

    try:
        for factory in (odd, breaks):
            registry.register("backbones", factory.__name__, factory)
            check_spec(factory.__name__, "real")
    finally:
        for factory in (odd, breaks):
            registry.unregister("backbones", factory.__name__)


def test_check_fit_preserves_the_modes_of_modules():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    net[1].eval()
    check_fit(net, "mine", torch.zeros(2, 4), 3)
    assert [module.training for module in net.modules()] == [True, True, False]


def test_check_spec_changes_neither_the_random_state_nor_a_shared_product():
    product = zoo.algebra("phm(n=4, shared=true)")
    before = product.structure.detach().clone()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    check_spec("vit(dim=32, depth=1)", product)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(product.structure, before)


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
        ("gpt/micro(depth=1)", "octonion", {"vocab_size": 67, "max_length": 16}),
        ("lstm", "complex", {"vocab_size": 20, "max_length": 8, "num_classes": 3}),
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
