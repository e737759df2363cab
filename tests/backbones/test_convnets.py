"""LeNet-300-100 and Conv-2, -4 and -6: sizes as published, over any algebra."""

import pytest
import torch

import zoo
from zoo import registry
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.testing import BackboneContract

INFO = {"in_channels": 1, "image_size": 8, "num_classes": 10}


def weights(variant, rule="real", scope="all", size=32, channels=3):
    info = {"in_channels": channels, "image_size": size, "num_classes": 10}
    with torch.device("meta"):
        net = registry.create("zoo.backbones", f"convnet/{variant}", Layers(rule, scope=scope), **info)
    return sum(p.numel() for p in net.parameters() if p.ndim > 1)


class TestConv2(BackboneContract):
    spec = "convnet/conv-2"
    info = INFO


class TestLeNet(BackboneContract):
    spec = "convnet/lenet-300-100"
    info = INFO
    algebras = ("quaternion", "phm-4")


def test_sizes_are_those_of_the_paper():
    """Frankle and Carbin (2019), Fig. 2: 266K, 4.3M and 2.4M weights.

    Conv-6 is printed with 1.7M, of which 1.1M in convolutions; its layers as printed have 1.14M and 2.26M.
    """
    assert weights("lenet-300-100", size=28, channels=1) == 784 * 300 + 300 * 100 + 1000
    assert weights("conv-2") // 100_000 / 10 == 4.3
    assert weights("conv-4") // 100_000 / 10 == 2.4
    convolutions = 9 * (3 * 64 + 64 * 64 + 64 * 128 + 128 * 128 + 128 * 256 + 256 * 256)
    assert weights("conv-6") == convolutions + 4 * 4 * 256 * 256 + 256 * 256 + 2560
    assert convolutions // 100_000 / 10 == 1.1


def test_what_is_over_the_algebra():
    real, stem, head = weights("conv-4"), 3 * 64 * 9, 256 * 10
    assert weights("conv-4", "quaternion") == (real - stem - head) // 4 + stem + head
    everything = weights("conv-4", "quaternion", "all+stem+head")  # three channels and ten classes are padded
    assert everything == (real - stem - head + 4 * 64 * 9 + 256 * 12) // 4


@pytest.mark.parametrize(
    ("variant", "size", "said"), [("conv-3", 32, "unknown preset convnet/conv-3"), ("conv-6", 7, "8 pixels or more")]
)
def test_mistakes(variant, size, said):
    with pytest.raises(InputError, match=said):
        weights(variant, size=size)


def test_channels_of_each_layer():
    spec = "convnet/conv-4(channels=(8, 12, 16, 20), hidden=(24, 28))"
    net = zoo.backbone(spec, "quaternion", in_channels=1, image_size=8, num_classes=3)
    assert [getattr(net, f"conv{i}").out_channels for i in (1, 2, 3, 4)] == [8, 12, 16, 20]
    assert [net.fc1.in_features, net.fc1.out_features, net.fc2.out_features] == [80, 24, 28]
    for options, said in (
        (
            "conv-4(channels=(8, 8))",
            r"channels=\(8, 8\): conv-4 has one number for each of its layers, 4 numbers, as channels=",
        ),
        ("conv-4(hidden=(8, 0))", r"hidden=\(8, 0\): conv-4"),
        ("conv-4(hidden=8)", "hidden=8"),
        ("lenet-300-100(channels=(8,))", "lenet-300-100 has one number for each of its layers, none at all"),
    ):
        with pytest.raises(InputError, match=said):
            zoo.backbone(f"convnet/{options}", "real", in_channels=1, image_size=8, num_classes=3)
