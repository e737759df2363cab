"""Any timm model by its name keeps the contract; timm's own network is its real twin."""

import pytest
import timm as library
import torch

from zoo import registry
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.testing import BackboneContract


def make(spec, rule="quaternion", **info):
    return registry.create("zoo.backbones", spec, Layers(rule), **{"image_size": 32, "num_classes": 5} | info)


INFO = {"in_channels": 3, "image_size": 32, "num_classes": 10}


class TestResNet(BackboneContract):
    spec = "timm/test_resnet"
    info = INFO
    algebras = ("real", "quaternion", "phm-4")


class TestViT(BackboneContract):
    spec = "timm/test_vit"
    info = INFO | {"in_channels": 1}
    algebras = ("real", "complex", "phm(n=4, shared=true)")


class TestConvNeXt(BackboneContract):
    spec = "timm/test_convnext"
    algebras = ("quaternion",)


@pytest.mark.parametrize("variant", ["test_resnet", "test_vit", "test_convnext", "test_efficientnet"])
def test_over_the_reals_it_is_timms_own_network(variant):
    ours, theirs = make(f"timm/{variant}", "real"), library.create_model(variant, num_classes=5)
    if variant == "test_vit":
        theirs = library.create_model(variant, num_classes=5, img_size=32)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    ours.load_state_dict(dict(rename(theirs.state_dict(), ours.state_dict())))
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def rename(theirs, ours):
    """Pair timm's weights with ours."""
    for key, value in theirs.items():
        components = key.removesuffix("weight") + "weight_module.components"
        yield (components, value) if components in ours else (key, value)


def test_options_pass_through():
    assert len(make("timm(variant=test_vit, depth=1)").blocks) == 1
    assert make("timm/test_resnet", in_channels=2).conv1[0].in_channels == 2


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("timm/resnet81", "no model 'resnet81': did you mean resnet"),
        ("timm(variant=test_vit, dep=1)", "timm cannot build 'test_vit'"),
        ("timm", "timm needs the option 'variant'"),
        ("timm(variant=test_vit, checkpoint_path=x)", "takes no checkpoint_path: variant and pretrained say"),
        ("timm(variant=test_vit, pretrained_cfg=x, cache_dir=y)", "takes no cache_dir, pretrained_cfg"),
        ("timm(variant=test_resnet, block_args=1)", "timm cannot build 'test_resnet'"),
    ],
)
def test_bad_input_is_one_line(spec, said):
    with pytest.raises(InputError, match=said) as caught:
        make(spec)
    assert "\n" not in str(caught.value)


def test_a_model_without_a_matrix_in_the_scope_is_bad_input():
    with pytest.raises(InputError, match="no matrix of this ResNet can be over an algebra: role conv is outside the scope"):
        registry.create("zoo.backbones", "timm/test_resnet", Layers("quaternion", "attention"), **INFO)


def test_an_image_that_the_model_cannot_take_is_bad_input():
    with pytest.raises(InputError, match="test_vit") as caught:
        make("timm/test_vit", image_size=0)
    assert "\n" not in str(caught.value)
