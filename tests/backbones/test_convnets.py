"""Small convolutional networks: published sizes, and shortcuts against their definition."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo.algebras import algebra
from zoo.backbones.vision import PaddedShortcut, ResidualBlock
from zoo.layers import Layers

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
def test_invalid_options(variant, code, value):
    with raises(code, value):
        build(variant, image_size=7)


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
