"""Networks from specs and from objects, and checks without data."""

import pytest
import torch
from torch import nn

import zoo
from tests.errors import raises
from zoo.algebras import Algebra
from zoo.backbones.build import WIDTHS, backbone, check_spec, count, equal_size, real_twin
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


@pytest.mark.parametrize(
    ("spec", "fitting"),
    [
        ("vit", "vit(dim=72)"),
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
        ("gpt(dim=72)", {"embedding": "complex_order"}),
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
