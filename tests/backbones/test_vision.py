"""The vision transformer and timm models over algebras and over the reals."""

import pytest
import timm as library
import torch

from tests.errors import raises
from zoo import registry
from zoo.layers import Layers, Linear

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 10}


def make(spec, rule="quaternion", **options):
    layers = rule if isinstance(rule, Layers) else Layers(rule)
    return registry.create("zoo.backbones", spec, layers, **INFO | options)


def test_blocks_are_over_the_algebra_and_stem_and_head_are_real():
    model = make("vit(depth=1)")
    assert model.conversion.converted == tuple(f"blocks.0.{name}" for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"))
    assert model.conversion.real == {"patch_embed.proj": "stem", "head": "head"}


@pytest.mark.parametrize(("size", "patch"), [(28, 4), (224, 28), (7, 7)])
def test_the_default_patch_size_gives_at_most_64_patches(size, patch):
    model = make("vit(depth=1)", image_size=size)
    assert model.patch_embed.patch_size == (patch, patch)


@pytest.mark.parametrize(
    ("spec", "code", "value"),
    [
        ("vit(dim=66, heads=4)", "invalid", "write vit(dim=80)"),
        ("vit(heads=4, head_dim=6)", "invalid", "head_dim=8"),
        ("vit(patch=3)", "invalid", "use one of 1, 2, 4, 8"),
        ("timm/resnet81", "unknown", "'resnet81': did you mean resnet"),
        ("timm(variant=test_vit, dep=1)", "invalid", "timm cannot build 'test_vit'"),
        ("timm", "missing", "'variant'"),
        ("timm(variant=test_vit, checkpoint_path=x, cache_dir=y)", "unsupported", "cache_dir, checkpoint_path"),
    ],
)
def test_invalid_options(spec, code, value):
    with raises(code, value):
        make(spec)


def test_heads_need_whole_elements_only_where_attention_is_hypercomplex():
    model = make("vit(dim=72, heads=4, depth=1)", Layers("quaternion", scope="ffn"))
    assert isinstance(model.blocks[0].mlp.fc1, Linear)


IMAGES = {"in_channels": 3, "image_size": 32, "num_classes": 5}


@pytest.mark.parametrize("variant", ["test_resnet", "test_vit", "test_convnext", "test_efficientnet"])
def test_over_the_reals_it_equals_the_network_of_timm(variant):
    ours, theirs = make(f"timm/{variant}", "real", **IMAGES), library.create_model(variant, num_classes=5)
    if variant == "test_vit":
        theirs = library.create_model(variant, num_classes=5, img_size=32)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    ours.load_state_dict(dict(rename(theirs.state_dict(), ours.state_dict())))
    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def rename(theirs, ours):
    """Rename the weights of timm to those of the zoo."""
    for key, value in theirs.items():
        components = key.removesuffix("weight") + "weight_module.components"
        yield (components, value) if components in ours else (key, value)


def test_options_are_passed_to_timm():
    assert len(make("timm(variant=test_vit, depth=1)").blocks) == 1
    assert make("timm/test_resnet", in_channels=2).conv1[0].in_channels == 2


def counts(spec, rule, **info):
    """Return the number of all parameters, and without vectors, as in the tables of papers."""
    with torch.device("meta"):
        model = registry.create("zoo.backbones", spec, Layers(rule), **info)
    return [sum(p.numel() for p in model.parameters() if p.ndim > least) for least in (0, 1)]


def test_the_networks_of_fraction():
    """Mukhopadhyay et al. (2025), Table 1: 1.1M / 0.3M (CIFAR-10), 1.2M / 0.3M (CIFAR-100), 28.95M / 7.72M (MedMNIST), cut off.

    CIFAR: 8 heads of 64 channels at dim 64, patches of 8 pixels and no bias for q, k and v fit both columns. MedMNIST, with one
    channel and few classes: without the vectors, that is norms and biases.
    """
    cifar = "vit(dim=64, depth=6, heads=8, head_dim=64, mlp_ratio=8.0, patch=8, qkv_bias=false)"
    matrices = 6 * (4 * 64 * 512 + 2 * 64 * 512)
    vectors = 6 * (64 + 512 + 64 + 4 * 64) + 2 * 64 + 64  # biases of a block and its norms; last norm, patches
    for classes, real, quaternion in ((10, 1.1, 0.3), (100, 1.2, 0.3)):
        info = {"in_channels": 3, "image_size": 32, "num_classes": classes}
        outside = 3 * 8 * 8 * 64 + 17 * 64 + 64 + 64 * classes
        for rule, n, published in (("real", 1, real), ("quaternion", 4, quaternion)):
            total, without = counts(cifar, rule, **info)
            assert total == matrices // n + outside + vectors + classes
            assert without == matrices // n + outside
            assert total // 100_000 / 10 == published
    med = "vit(dim=768, depth=8, heads=8, mlp_ratio=1.0, patch=7, representation_size=768, dropout=0.1)"
    info = {"in_channels": 1, "image_size": 28, "num_classes": 4}
    outside = 7 * 7 * 768 + 17 * 768 + 768 + 768 * 768 + 4 * 768
    for rule, n, published in (("real", 1, 28.95), ("quaternion", 4, 7.72)):
        total, without = counts(med, rule, **info)
        assert without == 8 * 6 * 768 * 768 // n + outside
        assert total == without + 8 * (6 + 4) * 768 + 2 * 768 + 768 + 768 + 4
        assert without // 10_000 / 100 == published


def test_head_dim_and_representation_size():
    model = make("vit(dim=16, depth=1, heads=2, head_dim=16, representation_size=24)")
    assert model.conversion.real == {"patch_embed.proj": "stem", "head.0": "head", "head.2": "head"}
    qkv, proj = model.blocks[0].attn.qkv, model.blocks[0].attn.proj
    assert (qkv.in_features, qkv.out_features, qkv.out.blocks) == (16, 96, 6)
    assert (proj.in_features, proj.out_features, proj.inp.blocks) == (32, 16, 2)
    wide, plain = (make(f"vit(dim=16, depth=1, heads=2{more})", "real") for more in (", head_dim=8", ""))
    wide.load_state_dict(plain.state_dict())
    x = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(wide.eval()(x), plain.eval()(x))
