"""Small convolutional networks: those of papers on lottery tickets, and residual networks for CIFAR-10."""

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.backbones.recipe import recipe
from zoo.errors import InputError, check_choice
from zoo.layers import Layers

PRESETS: dict[str, tuple[int, tuple[int, ...]]] = {
    "conv-2": (1, (256, 256)),
    "conv-4": (2, (256, 256)),
    "conv-6": (3, (256, 256)),
    "lenet-300-100": (0, (300, 100)),
}
"""Number of stages of two convolutions with 64 * 2^s channels, and hidden layers (Frankle and Carbin 2019, Fig. 2)."""
RESNETS: dict[str, tuple[int, bool]] = {"resnet-8": (1, True), "resnet-20": (3, False)}
"""Residual blocks in each of three stages, and whether shortcuts that change the shape are 1 x 1 convolutions.

ResNet-8 is Keras' ``resnet_v1_eembc`` of MLPerf Tiny (Banbury et al. 2021), with biases. ResNet-20 is section 4.2 of He et al.
(2016): shortcuts pad with zero channels (option A), and convolutions have no biases.
"""


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
    """LeNet-300-100, Conv-2, -4 and -6 (Frankle and Carbin 2019; over quaternions Iqbal and Mishra 2023), and small ResNets.

    Stages of two 3 x 3 convolutions with ReLU and a 2 x 2 max pooling, hidden layers with ReLU, and the head. The head and the
    first convolution are real without ``scope=all+stem+head``. LeNet-300-100 has no convolution, and its first layer, which has
    most of its weights, is over the algebra. ``resnet-8`` is the CIFAR-10 network of MLPerf Tiny (Banbury et al. 2021),
    ``resnet-20`` that of He et al. (2016).

    Args:
        variant: ``conv-2``, ``conv-4``, ``conv-6``, ``lenet-300-100``, ``resnet-8`` or ``resnet-20``, the part after the slash.
        channels: Channels of each convolution, such as (32, 32, 64, 64); in a residual network those of each stage, by default
            (16, 32, 64).
        hidden: Channels of each hidden layer, such as (128, 128).
        dropout: Dropout probability before each hidden layer and the head.
    """
    if variant in RESNETS:
        channels = _checked_widths("channels", channels, (16, 32, 64), variant)
        _checked_widths("hidden", hidden, (), variant)
        return resnet(layers, *RESNETS[variant], channels, in_channels, num_classes, dropout)
    check_choice("preset", f"convnet/{variant}", (f"convnet/{name}" for name in (*PRESETS, *RESNETS)))
    stages, preset = PRESETS[variant]
    channels = _checked_widths("channels", channels, tuple(64 * 2 ** (i // 2) for i in range(2 * stages)), variant)
    hidden = _checked_widths("hidden", hidden, preset, variant)
    if image_size < 2**stages:
        raise InputError(f"image_size={image_size}: must be at least {2**stages} for {variant}")
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    features = in_channels
    for number, width in enumerate(channels, 1):
        role = "stem" if number == 1 else "conv"
        parts[f"conv{number}"] = layers.conv2d(features, width, 3, padding=1, role=role)
        parts[f"relu{number}"] = nn.ReLU()
        if number % 2 == 0:
            parts[f"pool{number // 2}"] = nn.MaxPool2d(2)
        features = width
    parts["flatten"] = nn.Flatten()  # features stay component-major
    features *= (image_size // 2**stages) ** 2
    for number, width in enumerate(hidden, 1):
        parts[f"dropout{number}"] = nn.Dropout(dropout)
        parts[f"fc{number}"], parts[f"fc_relu{number}"] = layers.linear(features, width, role="ffn"), nn.ReLU()
        features = width
    parts["head_dropout"], parts["head"] = nn.Dropout(dropout), layers.linear(features, num_classes, role="head")
    return nn.Sequential(parts)


def _checked_widths(name: str, widths: tuple[int, ...] | None, preset: tuple[int, ...], variant: str) -> tuple[int, ...]:
    """Return the widths of a preset, or an equal number of given widths."""
    if widths is None:
        return preset
    if len(widths) != len(preset) or min(widths, default=1) < 1:
        expected = f"{len(preset)} positive integers, such as {name}={preset}" if preset else f"no {name}"
        raise InputError(f"{name}={widths}: {variant} expects {expected}")
    return tuple(widths)


def resnet(
    layers: Layers,
    blocks: int,
    is_projected: bool,
    channels: tuple[int, ...],
    in_channels: int,
    num_classes: int,
    dropout: float,
) -> nn.Module:
    """Build a residual network: stem, three stages with strides 1, 2 and 2, global average pooling, head."""
    width = channels[0]
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["stem"] = layers.conv2d(in_channels, width, 3, padding=1, bias=is_projected, role="stem")
    parts["stem_norm"], parts["stem_relu"] = nn.BatchNorm2d(width), nn.ReLU()
    for stage, out in enumerate(channels):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            parts[f"stage{stage + 1}_block{block + 1}"] = ResidualBlock(layers, width, out, stride, is_projected)
            width = out
    parts["pool"], parts["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    parts["head_dropout"], parts["head"] = nn.Dropout(dropout), layers.linear(width, num_classes, role="head")
    return nn.Sequential(parts)


class ResidualBlock(nn.Module):
    """relu(norm2(conv2(relu(norm1(conv1(x))))) + shortcut(x)), with 3 x 3 convolutions (He et al. 2016, Fig. 2).

    ``stride`` is that of the first convolution and the shortcut; see `RESNETS` for ``is_projected``.
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
    """Subsample an image, and pad its channels with zero elements or truncate them; without parameters.

    Channels are component-major, so each of the n components is padded separately. Over the reals this is option A of He et al.
    (2016).
    """

    def __init__(self, n: int, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.n, self.in_channels, self.out_channels, self.stride = n, in_channels, out_channels, stride

    def forward(self, x: Tensor) -> Tensor:
        """Apply the shortcut: [B, in_channels, H, W] to [B, out_channels, H / stride, W / stride]."""
        x = x[:, :, :: self.stride, :: self.stride]
        inp, out = -(-self.in_channels // self.n), -(-self.out_channels // self.n)
        x = F.pad(x, (0, 0, 0, 0, 0, self.n * inp - self.in_channels)).unflatten(1, (self.n, inp))
        return F.pad(x, (0, 0, 0, 0, 0, out - inp)).flatten(1, 2)[:, : self.out_channels]

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.in_channels}, {self.out_channels}, stride={self.stride}, n={self.n}"
