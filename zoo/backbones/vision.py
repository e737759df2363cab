"""Image classifiers: the vision transformer, any timm model converted to the algebra, and small convolutional networks."""

import difflib
from collections import OrderedDict
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.backbones.build import describe, recipe
from zoo.conversion import convert
from zoo.conversion.attention_layout import MatrixLayout
from zoo.errors import InputError, check_choice, check_rules, one_line
from zoo.nn import Layers
from zoo.nn.attention import check_heads
from zoo.registry.limits import LARGEST

PREPROCESSING = {"interpolation": "bicubic", "crop_pct": 1.0}
"""How the zoo resizes images, by timm's names: the short side to the image size, see `zoo.data.pixels`."""
# Options of timm.create_model with file names and URLs, or that replace timm's configuration of a model.
_UNSUPPORTED_OPTIONS = {"checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "pretrained_strict"}
# Exceptions of timm's models for invalid arguments and weights.
_TIMM_ERRORS = (TypeError, ValueError, AssertionError, RuntimeError, OSError, LookupError, AttributeError, UnpicklingError)


@recipe(data="digits", max_epochs=50, lr=2e-3, inputs=("image",))
def vit(
    layers: Layers,
    *,
    in_channels: int = 3,
    image_size: int = 224,
    num_classes: int = 1000,
    dim: int = 64,
    depth: int = 4,
    heads: int = 4,
    patch: int | None = None,
    mlp_ratio: float = 4.0,
    dropout: float = 0.0,
    drop_path: float = 0.0,
    head_dim: int | None = None,
    qkv_bias: bool = True,
    representation_size: int | None = None,
) -> nn.Module:
    """Vision transformer (Dosovitskiy et al. 2021), timm's, with every matrix of its blocks over the algebra.

    Patch embedding, class token, positions, norms, biases and head are real, as in Fraction (Mukhopadhyay et al. 2025).

    Args:
        dim: Channels of the residual stream.
        depth: Number of blocks.
        heads: Attention heads; each has dim / heads channels, which must be whole algebra elements.
        patch: Side of a patch in pixels; by default the smallest of at least 2 with at most 64 patches.
        mlp_ratio: Hidden channels of the MLP divided by dim.
        dropout: Dropout probability after each projection.
        drop_path: Stochastic depth rate of the last block; the rate grows linearly from zero.
        head_dim: Channels of a head; by default dim / heads, else dim need not be a multiple of heads.
        qkv_bias: Whether queries, keys and values have biases.
        representation_size: Hidden channels of an MLP head with tanh; by default the head is one layer.
    """
    check_heads(dim, heads, layers.over("attention").n, backbone="vit", head_dim=head_dim)
    check_rules(
        (depth >= 1, f"depth={depth}: must be at least 1"),
        (0 <= drop_path < 1, f"drop_path={drop_path}: must be in [0, 1)"),
        (1 <= dim * mlp_ratio <= LARGEST, f"mlp_ratio={mlp_ratio}: the MLP must have 1 to {LARGEST} hidden channels"),
    )
    sides = [side for side in range(1, image_size + 1) if image_size % side == 0]
    if patch is None:
        patch = next((side for side in sides if side > 1 and image_size // side <= 8), image_size)
    elif patch not in sides:
        raise InputError(f"patch={patch} does not tile an image of {image_size} pixels: use one of {str(sides)[1:-1]}")
    options: dict[str, Any] = {"img_size": image_size, "patch_size": patch, "in_chans": in_channels, "embed_dim": dim}
    options |= {"depth": depth, "mlp_ratio": mlp_ratio, "proj_drop_rate": dropout, "drop_path_rate": drop_path}
    options |= {"num_classes": num_classes, "qkv_bias": qkv_bias}
    model = _vision_transformer(options, heads, head_dim, representation_size)
    # Larger than timm's 0.02, with which small networks learn positions slowly: 0.85 instead of 0.98 validation accuracy on
    # digits (quaternions, batch 64, 30 epochs, one seed).
    nn.init.normal_(model.pos_embed, std=0.5)
    layouts = {"qkv": MatrixLayout("attention", (1, 3 * heads)), "proj": MatrixLayout("attention", (heads, 1))}
    return convert(model, layers, layout=lambda name, _: layouts.get(name.rpartition("attn.")[2], MatrixLayout()))


def _vision_transformer(options: dict[str, Any], heads: int, head_dim: int | None, representation_size: int | None) -> Any:
    """Build timm's network over the reals, with attention heads of any size and a head of one or two layers."""
    from timm.layers import Attention
    from timm.models.vision_transformer import VisionTransformer

    dim, bias, dropout = (options[name] for name in ("embed_dim", "qkv_bias", "proj_drop_rate"))
    model: Any = VisionTransformer(**options, num_heads=heads if head_dim is None else 1)
    classifier = "head" if representation_size is None else ("head.0", "head.2")
    size = options["in_chans"], options["img_size"], options["img_size"]
    facts = {"first_conv": "patch_embed.proj", "classifier": classifier, "fixed_input_size": True}
    describe(model, architecture="vit", input_size=size, num_classes=options["num_classes"], **PREPROCESSING, **facts)
    if head_dim is not None:
        for block in model.blocks:
            block.attn = Attention(dim, heads, attn_head_dim=head_dim, qkv_bias=bias, proj_drop=dropout)
    if representation_size is not None:
        hidden, last = nn.Linear(dim, representation_size), nn.Linear(representation_size, options["num_classes"])
        model.head = nn.Sequential(hidden, nn.Tanh(), last)
    if head_dim is not None or representation_size is not None:
        model.init_weights()
    return model


@recipe(data="digits(size=32)", max_epochs=10, lr=1e-3, inputs=("image",))
def timm(
    layers: Layers,
    *,
    variant: str,
    in_channels: int = 3,
    image_size: int = 224,
    num_classes: int = 1000,
    pretrained: bool = False,
    **options: Any,
) -> nn.Module:
    """Any timm model by its name, as in timm/resnet18, converted to the algebra by `zoo.convert`.

    Args:
        variant: timm's name of the model, the part after the slash.
        pretrained: Start from timm's weights, projected to the nearest ones over the algebra; downloads them once.
        options: Keyword arguments of ``timm.create_model``, such as ``drop_path_rate``.
    """
    import timm as library

    if unsupported := sorted(_UNSUPPORTED_OPTIONS & options.keys()):
        text = f"the timm backbone does not support {', '.join(unsupported)}: use a variant and pretrained"
        raise InputError(text, code="unsupported")
    if not library.is_model(variant):
        close = difflib.get_close_matches(variant, library.list_models(), n=3)
        hint = f": did you mean {', '.join(close)}?" if close else ""
        raise InputError(f"timm {library.__version__} has no model '{variant}'{hint}", code="unknown")
    if library.get_pretrained_cfg_value(variant, "fixed_input_size"):
        options.setdefault("img_size", image_size)
    if pretrained:
        check_weights(variant)
    try:
        model = library.create_model(variant, pretrained=pretrained, in_chans=in_channels, num_classes=num_classes, **options)
    except _TIMM_ERRORS as error:
        if pretrained and isinstance(error, OSError):
            raise InputError(f"cannot load the weights of timm/{variant}: {one_line(error)}", code="failed") from error
        model_name = f"'{variant}' for {image_size}-pixel images" + (f" with {options}" if options else "")
        raise InputError(f"timm cannot build {model_name}: {one_line(error)}") from error
    describe(model, input_size=(in_channels, image_size, image_size), num_classes=num_classes, **PREPROCESSING)
    return convert(model, layers, weights="project" if pretrained else "fresh")


def check_weights(variant: str) -> None:
    """Raise `InputError` unless timm's weights are cached or their Hub is reachable, which timm would try for a minute."""
    from huggingface_hub import constants, get_session, try_to_load_from_cache
    from timm import get_pretrained_cfg

    config: Any = get_pretrained_cfg(variant)
    if config is None or not config.hf_hub_id:
        return
    names = (config.hf_hub_filename, "model.safetensors", "pytorch_model.bin")
    if any(isinstance(try_to_load_from_cache(config.hf_hub_id, name), str) for name in names if name):
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception as error:  # of the HTTP library of any version of the Hub's client
        text = f"cannot download the weights of timm/{variant} from {constants.ENDPOINT}: {one_line(error)}"
        raise InputError(text, code="failed") from error


PRESETS: dict[str, tuple[int, tuple[int, ...]]] = {
    "conv-2": (1, (256, 256)),
    "conv-4": (2, (256, 256)),
    "conv-6": (3, (256, 256)),
    "lenet-300-100": (0, (300, 100)),
}
"""Number of stages of two convolutions with 64 * 2^s channels, and hidden layers (Frankle and Carbin 2019, Fig. 2)."""
RESNETS: dict[str, tuple[int, bool]] = {"resnet-8": (1, True), "resnet-20": (3, False)}
"""Residual blocks in each of three stages, and whether shortcuts that change the shape are 1 x 1 convolutions, with biases.

ResNet-8 is Keras' ``resnet_v1_eembc`` of MLPerf Tiny (Banbury et al. 2021), ResNet-20 that of He et al. (2016, section 4.2).
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
    return ConvNet(parts)


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
    return ConvNet(parts)


class ConvNet(nn.Sequential):
    """The modules in turn; on CPUs with channels last in memory, which is faster (docs/speed.md)."""

    def forward(self, x: Tensor) -> Tensor:
        """Classify images: [B, in_channels, H, W] to [B, num_classes]."""
        if x.device.type == "cpu":  # not measured on GPUs
            x = x.contiguous(memory_format=torch.channels_last)
        for module in self:
            x = module(x)
        return x


class ResidualBlock(nn.Module):
    """relu(norm2(conv2(relu(norm1(conv1(x))))) + shortcut(x)), with 3 x 3 convolutions (He et al. 2016, Fig. 2)."""

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
