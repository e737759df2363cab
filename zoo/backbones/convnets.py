"""Small networks for images: those of papers on lottery tickets, and the residual networks for CIFAR-10."""

from collections import OrderedDict

from torch import nn

from zoo.backbones.recipe import recipe
from zoo.backbones.resnets import RESNETS, resnet
from zoo.errors import InputError
from zoo.layers import Layers

PRESETS: dict[str, tuple[int, tuple[int, ...]]] = {
    "conv-2": (1, (256, 256)),
    "conv-4": (2, (256, 256)),
    "conv-6": (3, (256, 256)),
    "lenet-300-100": (0, (300, 100)),
}
"""Stages of two convolutions, stage s of 64 * 2^s channels, and the hidden layers (Frankle and Carbin 2019, Fig. 2)."""


@recipe(data="digits", max_epochs=20, lr=2e-3, inputs=("image",))
def convnet(
    layers: Layers,
    *,
    in_channels: int = 3,
    image_size: int = 32,
    num_classes: int = 10,
    variant: str = "conv-4",
    channels: tuple[int, ...] | None = None,
    hidden: tuple[int, ...] | None = None,
    dropout: float = 0.0,
) -> nn.Module:
    """LeNet-300-100 and Conv-2, -4 and -6 of Frankle and Carbin (2019), quaternions in Iqbal and Mishra (2023), and ResNets.

    Stages of two 3 x 3 convolutions with ReLU and a maximum over 2 x 2, then hidden layers with ReLU, then the head, which is
    real as the first convolution is. LeNet-300-100 has no convolution, and its first layer, which has most of its weights, is
    over the algebra; ``scope=all+stem+head`` has every layer over it. ``resnet-8`` is the CIFAR-10 network of MLPerf Tiny
    (Banbury et al. 2021), ``resnet-20`` that of He et al. (2016), see `zoo.backbones.resnets`.

    Args:
        layers: The factory that knows the algebra.
        in_channels: Channels of an image, [B, in_channels, image_size, image_size].
        image_size: Side of an image in pixels.
        num_classes: Logits, [B, num_classes].
        variant: ``conv-2``, ``conv-4``, ``conv-6``, ``lenet-300-100``, ``resnet-8`` or ``resnet-20``, the part after the slash.
        channels: Channels of each convolution in place of the preset's, as (32, 32, 64, 64); of each of the three stages in
            a residual network, by default (16, 32, 64).
        hidden: Channels of each hidden layer in place of the preset's, as (128, 128).
        dropout: Probability before each hidden layer and the head.
    """
    if variant in RESNETS:
        channels = _widths("channels", channels, RESNETS[variant].channels, variant)
        _widths("hidden", hidden, (), variant)
        return resnet(layers, RESNETS[variant], channels, in_channels, num_classes, dropout)
    if variant not in PRESETS:
        presets = ", ".join(f"convnet/{name}" for name in (*PRESETS, *RESNETS))
        raise InputError(f"unknown preset convnet/{variant}: use {presets}", code="unknown")
    stages, preset = PRESETS[variant]
    widths = _widths("channels", channels, tuple(64 * 2**stage for stage in range(stages) for _ in (1, 2)), variant)
    hidden = _widths("hidden", hidden, preset, variant)
    if image_size < 2**stages:
        raise InputError(f"image_size={image_size}: {variant} halves images {stages} times, use {2**stages} pixels or more")
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    features, side = in_channels, image_size
    for stage in range(stages):
        for place in (1, 2):
            role = "stem" if (stage, place) == (0, 1) else "conv"
            number = 2 * stage + place
            parts[f"conv{number}"] = layers.conv2d(features, widths[number - 1], 3, padding=1, role=role)
            parts[f"relu{number}"] = nn.ReLU()
            features = widths[number - 1]
        parts[f"pool{stage + 1}"] = nn.MaxPool2d(2)
        side //= 2
    parts["flatten"] = nn.Flatten()  # channel by channel, so what was component-major stays it
    features *= side**2
    for number, width in enumerate(hidden, 1):
        parts[f"dropout{number}"] = nn.Dropout(dropout)
        parts[f"fc{number}"], parts[f"fc_relu{number}"] = layers.linear(features, width, role="ffn"), nn.ReLU()
        features = width
    parts["head_dropout"], parts["head"] = nn.Dropout(dropout), layers.linear(features, num_classes, role="head")
    return nn.Sequential(parts)


def _widths(name: str, given: tuple[int, ...] | None, preset: tuple[int, ...], variant: str) -> tuple[int, ...]:
    """Return the channels of some layers: those of the preset, or as many that were given."""
    if given is None:
        return preset
    if not isinstance(given, tuple | list) or [*map(type, given)] != [int] * len(preset) or min(given, default=1) < 1:
        wanted = f"{len(preset)} numbers, as {name}={preset}" if preset else "none at all"
        raise InputError(f"{name}={given}: {variant} has one number for each of its layers, {wanted}")
    return tuple(given)
