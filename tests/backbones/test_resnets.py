"""ResNet-8 of MLPerf Tiny and ResNet-20 for CIFAR: counts by hand, shortcuts, over any algebra."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import zoo
from tests.errors import raises
from zoo.algebras import algebra
from zoo.backbones.resnets import PaddedShortcut, ResidualBlock
from zoo.layers import Layers
from zoo.testing import BackboneContract

CIFAR = {"in_channels": 3, "image_size": 32, "num_classes": 10}


def build(spec, rule="real", **info):
    torch.manual_seed(0)
    return zoo.backbone(f"convnet/{spec}", rule, **CIFAR | info)


def parameters(net):
    return sum(p.numel() for p in net.parameters())


class TestResNet8(BackboneContract):
    spec = "convnet/resnet-8(channels=(16, 16, 32))"
    info = CIFAR | {"image_size": 8}


class TestResNet20(BackboneContract):
    spec = "convnet/resnet-20(channels=(8, 8, 16))"
    info = CIFAR | {"image_size": 8}
    algebras = ("octonion", "phm-3")  # 3 divides no width: the shortcut pads


def test_resnet_8_has_the_weights_of_mlperf_tiny():
    """Keras prints 78,666, of which 480 are the running statistics of its batch norms: 78,186 are trained."""
    net = build("resnet-8")
    convolutions = 9 * (3 * 16 + 2 * 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64) + 16 * 32 + 32 * 64
    biases, norms = 3 * 16 + 3 * 32 + 3 * 64, 2 * (3 * 16 + 2 * 32 + 2 * 64)
    assert parameters(net) == convolutions + biases + norms + 64 * 10 + 10 == 78_186
    statistics = sum(b.numel() for name, b in net.named_buffers() if name.endswith(("running_mean", "running_var")))
    assert parameters(net) + statistics == 78_666


def test_resnet_20_has_the_weights_of_the_paper():
    """He et al. (2016), Table 6: 0.27M; option A has no weights in its shortcuts."""
    convolutions = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    assert parameters(build("resnet-20")) == convolutions + 2 * (7 * 16 + 6 * 32 + 6 * 64) + 64 * 10 + 10 == 269_722


@pytest.mark.parametrize(("rule", "n"), [("quaternion", 4), ("octonion", 8), ("complex", 2)])
def test_matrices_between_stem_and_head_are_over_the_algebra(rule, n):
    real, ours = build("resnet-20"), build("resnet-20", rule)
    shared = 9 * (6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    assert parameters(real) - parameters(ours) == shared - shared // n


def test_channels_set_the_width_of_each_stage():
    net = build("resnet-8(channels=(8, 12, 20))", "quaternion")
    assert [getattr(net, f"stage{i}_block1").conv2.out_channels for i in (1, 2, 3)] == [8, 12, 20]
    for options, value in (("channels=(8, 8)", "channels=(8, 8)"), ("hidden=(8,)", "hidden=(8,)")):
        with raises("invalid", value):
            build(f"resnet-8({options})")
    with raises("unknown", "resnet-9", "resnet-8"):
        build("resnet-9")


def test_an_image_may_have_one_pixel():
    assert build("resnet-20", image_size=1).eval()(torch.rand(2, 3, 1, 1)).isfinite().all()


def test_images_are_halved_twice():
    sides = []
    for block in (net := build("resnet-20")).children():
        if isinstance(block, ResidualBlock):
            block.register_forward_hook(lambda *args: sides.append(args[-1].shape[-1]))
    net.eval()(torch.rand(1, 3, 32, 32))
    assert sides == [32] * 3 + [16] * 3 + [8] * 3


def test_a_block_is_the_formula():
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
def test_padding_keeps_components_in_their_places(sizes):
    """shortcut(x q) = shortcut(x) q, elementwise: no number moves from one component into another."""
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
