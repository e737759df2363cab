"""The residual networks for CIFAR-10: ResNet-8 of MLPerf Tiny and ResNet-20 of He et al. (2016)."""

from collections import OrderedDict
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers import Layers


class ResNetPreset(NamedTuple):
    """One published network.

    Attributes:
        blocks: Residual blocks per stage; there are three stages.
        is_projected: Whether a shortcut that changes its shape is a 1 x 1 convolution, and convolutions have biases; otherwise
            it pads with zero channels (option A of He et al. 2016), and convolutions have none.
        channels: Channels of each stage.
    """

    blocks: int
    is_projected: bool
    channels: tuple[int, ...] = (16, 32, 64)


RESNETS = {"resnet-8": ResNetPreset(1, True), "resnet-20": ResNetPreset(3, False)}
"""ResNet-8 is Keras' ``resnet_v1_eembc`` of MLPerf Tiny (Banbury et al. 2021), ResNet-20 section 4.2 of He et al. (2016)."""


def resnet(
    layers: Layers, preset: ResNetPreset, channels: tuple[int, ...], in_channels: int, num_classes: int, dropout: float
) -> nn.Module:
    """Build a residual network: [B, in_channels, H, W] to [B, num_classes].

    Stem convolution, three stages that halve the image between them, mean over the image, head. Stem and head have roles
    ``stem`` and ``head``; every other convolution has the role ``conv``.
    """
    bias = preset.is_projected
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["stem"] = layers.conv2d(in_channels, channels[0], 3, padding=1, bias=bias, role="stem")
    parts["stem_norm"], parts["stem_relu"] = nn.BatchNorm2d(channels[0]), nn.ReLU()
    width = channels[0]
    for stage, out in enumerate(channels):
        for block in range(preset.blocks):
            stride = 2 if stage and not block else 1
            parts[f"stage{stage + 1}_block{block + 1}"] = ResidualBlock(layers, width, out, stride, preset.is_projected)
            width = out
    parts["pool"], parts["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    parts["head_dropout"], parts["head"] = nn.Dropout(dropout), layers.linear(width, num_classes, role="head")
    return nn.Sequential(parts)


class ResidualBlock(nn.Module):
    """relu(norm2(conv2(relu(norm1(conv1(x))))) + shortcut(x)), with 3 x 3 convolutions (He et al. 2016, Fig. 2).

    Args:
        layers: The factory that knows the algebra.
        in_channels: Input channels.
        out_channels: Output channels.
        stride: Stride of the first convolution and of the shortcut.
        is_projected: See `ResNetPreset`.
    """

    def __init__(self, layers: Layers, in_channels: int, out_channels: int, stride: int, is_projected: bool) -> None:
        super().__init__()
        self.conv1 = layers.conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=is_projected)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = layers.conv2d(out_channels, out_channels, 3, padding=1, bias=is_projected)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if is_projected and (stride > 1 or in_channels != out_channels):
            self.shortcut = layers.conv2d(in_channels, out_channels, 1, stride=stride)
        elif stride > 1 or in_channels != out_channels:
            self.shortcut = PaddedShortcut(layers.over("conv").n, in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block: [B, in_channels, H, W] to [B, out_channels, H / stride, W / stride]."""
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu(y + self.shortcut(x))
        return out


class PaddedShortcut(nn.Module):
    """Subsample an image and append zero algebra elements to its channels, or drop elements: no parameters.

    Each of the n components is padded by itself, since channels are component-major: zeros at the end of the channel axis
    would move numbers from one component into another. Over the reals this is option A of He et al. (2016).

    Args:
        n: Dimension of the algebra.
        in_channels: Input channels.
        out_channels: Output channels.
        stride: Every how many pixels to take one.
    """

    def __init__(self, n: int, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.n, self.in_channels, self.out_channels, self.stride = n, in_channels, out_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, out_channels, H / stride, W / stride]."""
        x = x[:, :, :: self.stride, :: self.stride]
        inp, out = -(-self.in_channels // self.n), -(-self.out_channels // self.n)
        x = F.pad(x, (0, 0, 0, 0, 0, self.n * inp - self.in_channels)).unflatten(1, (self.n, inp))
        return F.pad(x, (0, 0, 0, 0, 0, out - inp)).flatten(1, 2)[:, : self.out_channels]

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.in_channels}, {self.out_channels}, stride={self.stride}, n={self.n}"
