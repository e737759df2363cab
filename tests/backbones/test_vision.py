"""Vision transformers, timm models and small convolutional networks over algebras and over the reals."""

import pytest
import timm as library
import torch
from torch import nn
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo import registry
from zoo.algebras import algebra
from zoo.backbones.vision import PaddedShortcut, ResidualBlock
from zoo.nn import Layers, Linear

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
        ("vit(dim=66, heads=4)", "invalid", "write vit(dim=80, heads=4)"),
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


CIFAR = {"in_channels": 3, "image_size": 32, "num_classes": 10}


def build(variant, rule="real", scope="all", **info):
    torch.manual_seed(0)
    return zoo.backbone(f"convnet/{variant}", rule, scope=scope, **CIFAR | info)


def weights(*args, **info):
    """Count the weights without biases, on the meta device."""
    with torch.device("meta"):
        return sum(p.numel() for p in build(*args, **info).parameters() if p.ndim > 1)


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def test_the_sizes_of_frankle_and_carbin():
    """Frankle and Carbin (2019), Fig. 2: 266K, 4.3M and 2.4M weights.

    Conv-6 is printed with 1.7M, of which 1.1M in convolutions; its layers as printed have 1.14M and 2.26M.
    """
    assert weights("lenet-300-100", image_size=28, in_channels=1) == 784 * 300 + 300 * 100 + 1000
    assert weights("conv-2") // 100_000 / 10 == 4.3
    assert weights("conv-4") // 100_000 / 10 == 2.4
    convolutions = 9 * (3 * 64 + 64 * 64 + 64 * 128 + 128 * 128 + 128 * 256 + 256 * 256)
    assert weights("conv-6") == convolutions + 4 * 4 * 256 * 256 + 256 * 256 + 2560


def test_the_size_of_resnet_20_in_the_paper():
    """He et al. (2016), Table 6: 0.27M; option A has no weights in its shortcuts."""
    convolutions = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    assert parameters(build("resnet-20")) == convolutions + 2 * (7 * 16 + 6 * 32 + 6 * 64) + 64 * 10 + 10 == 269_722


def test_matrices_between_stem_and_head_are_over_the_algebra():
    real, stem, head = weights("conv-4"), 3 * 64 * 9, 256 * 10
    assert weights("conv-4", "quaternion") == (real - stem - head) // 4 + stem + head
    everything = weights("conv-4", "quaternion", "all+stem+head")  # three channels and ten classes are padded
    assert everything == (real - stem - head + 4 * 64 * 9 + 256 * 12) // 4
    shared = 9 * (6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    for rule, n in (("quaternion", 4), ("octonion", 8)):
        assert parameters(build("resnet-20")) - parameters(build("resnet-20", rule)) == shared - shared // n


def test_channels_of_each_layer():
    net = build("conv-4(channels=(8, 12, 16, 20), hidden=(24, 28))", "quaternion", image_size=8)
    assert [getattr(net, f"conv{i}").out_channels for i in (1, 2, 3, 4)] == [8, 12, 16, 20]
    assert [net.fc1.in_features, net.fc1.out_features, net.fc2.out_features] == [80, 24, 28]
    net = build("resnet-8(channels=(8, 12, 20))", "quaternion")
    assert [getattr(net, f"stage{i}_block1").conv2.out_channels for i in (1, 2, 3)] == [8, 12, 20]


@pytest.mark.parametrize(
    ("variant", "code", "value"),
    [
        ("conv-4(channels=(8, 8))", "invalid", "channels=(8, 8)"),
        ("resnet-9", "unknown", "resnet-8"),
        ("conv-6", "invalid", "image_size=7"),
    ],
)
def test_invalid_options_of_convnets(variant, code, value):
    with raises(code, value):
        build(variant, image_size=7)


@pytest.mark.parametrize("algebra", ["real", "quaternion"])
@pytest.mark.parametrize("variant", ["resnet-8(channels=(8, 8, 16))", "conv-2(channels=(8, 8), hidden=(8, 8))"])
def test_channels_are_last_in_memory_on_cpus(variant, algebra):
    net = zoo.backbone(f"convnet/{variant}", algebra).eval()
    images, seen = torch.randn(2, 3, 32, 32), []
    for module in net.modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(lambda module, inputs, out: seen.append(out))
    out = net(images)
    assert all(y.is_contiguous(memory_format=torch.channels_last) for y in seen if y.ndim == 4)
    torch.testing.assert_close(out, nn.Sequential(*net)(images))


def test_a_residual_block_equals_its_definition():
    torch.manual_seed(0)
    block, x = ResidualBlock(Layers("real"), 4, 6, 2, True).double().eval(), torch.randn(2, 4, 8, 8, dtype=torch.float64)
    for norm in (block.norm1, block.norm2):
        nn.init.uniform_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    y = F.relu(block.norm1(F.conv2d(x, block.conv1.weight, block.conv1.bias, stride=2, padding=1)))
    y = block.norm2(F.conv2d(y, block.conv2.weight, block.conv2.bias, padding=1))
    y = F.relu(y + F.conv2d(x, block.shortcut.weight, block.shortcut.bias, stride=2))
    torch.testing.assert_close(block(x), y)


@pytest.mark.parametrize("sizes", [(8, 16), (16, 8), (8, 8)])
def test_padding_commutes_with_the_product(sizes):
    """shortcut(x q) = shortcut(x) q."""
    torch.manual_seed(0)
    product, shortcut = algebra("quaternion").double(), PaddedShortcut(4, *sizes, stride=2)
    x, q = torch.randn(2, sizes[0], 6, 6, dtype=torch.float64), torch.randn(4, dtype=torch.float64)

    def times(y):
        y = y.movedim(1, -1)
        return product(y, q.repeat_interleave(y.shape[-1] // 4).expand_as(y)).movedim(-1, 1)

    torch.testing.assert_close(shortcut(times(x)), times(shortcut(x)))
    assert shortcut(x).shape == (2, sizes[1], 3, 3)


def test_padding_over_the_reals_is_option_a():
    x = torch.randn(2, 3, 6, 6)
    y = PaddedShortcut(1, 3, 5, stride=2)(x)
    assert torch.equal(y[:, :3], x[:, :, ::2, ::2])
    assert not y[:, 3:].any()
