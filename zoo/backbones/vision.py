"""Image classifiers: the vision transformer, and any timm model converted to the algebra."""

import difflib
from pickle import UnpicklingError
from typing import Any

from torch import nn

from zoo.backbones.recipe import recipe
from zoo.conversion import convert
from zoo.conversion.attention_layout import MatrixLayout
from zoo.errors import InputError, check_rules, one_line
from zoo.layers import Layers
from zoo.layers.attention import check_heads

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
    model.pretrained_cfg = {"first_conv": "patch_embed.proj", "classifier": "head"}
    if head_dim is not None:
        for block in model.blocks:
            block.attn = Attention(dim, heads, attn_head_dim=head_dim, qkv_bias=bias, proj_drop=dropout)
    if representation_size is not None:
        hidden, last = nn.Linear(dim, representation_size), nn.Linear(representation_size, options["num_classes"])
        model.head = nn.Sequential(hidden, nn.Tanh(), last)
        model.pretrained_cfg["classifier"] = ("head.0", "head.2")
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
    try:
        model = library.create_model(variant, pretrained=pretrained, in_chans=in_channels, num_classes=num_classes, **options)
    except _TIMM_ERRORS as error:
        model_name = f"'{variant}' for {image_size}-pixel images with {options}"
        raise InputError(f"timm cannot build {model_name}: {one_line(error)}") from error
    return convert(model, layers, weights="project" if pretrained else "fresh")
