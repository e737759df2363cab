"""Image classifiers: the vision transformer, and any model of timm converted to the algebra."""

import difflib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from zoo.backbones.recipe import recipe
from zoo.conversion import convert
from zoo.conversion.attention_layout import MatrixLayout
from zoo.errors import InputError, check_rules, one_line
from zoo.layers import Layers
from zoo.layers.attention import check_heads

# Options of timm.create_model that name files and addresses, or replace what timm itself knows of a model.
_FOREIGN = {"checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "pretrained_strict"}
# What timm's models raise for arguments and weights they cannot take.
_REFUSALS = (TypeError, ValueError, AssertionError, RuntimeError, OSError, LookupError, AttributeError, pickle.UnpicklingError)


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
        layers: The factory that knows the algebra.
        in_channels: Channels of an image, [B, in_channels, image_size, image_size].
        image_size: Side of an image in pixels.
        num_classes: Logits, [B, num_classes].
        dim: Channels of the residual stream.
        depth: Blocks.
        heads: Attention heads; each has dim / heads channels, which must be whole algebra elements.
        patch: Side of a patch in pixels; by default the smallest that cuts an image into at most 64 patches and is at least 2.
        mlp_ratio: Hidden channels of the MLP over dim.
        dropout: Probability after each projection.
        drop_path: Stochastic depth of the last block; it grows linearly from zero.
        head_dim: Channels of a head, by default dim / heads; then dim need be no multiple of the heads.
        qkv_bias: Whether queries, keys and values have biases.
        representation_size: Hidden channels of an MLP head, with tanh; by default the head is one layer.
    """
    _check_heads(layers.over("attention").n, dim, heads, head_dim, representation_size)
    check_rules(
        (depth >= 1, f"depth={depth}: a vision transformer has one block or more"),
        (dim * mlp_ratio >= 1, f"mlp_ratio={mlp_ratio}: an MLP has one hidden channel or more"),
        (0 <= drop_path < 1, f"drop_path={drop_path}: a probability is from 0 to below 1"),
    )
    sides = [side for side in range(1, image_size + 1) if image_size % side == 0]
    if patch is None:
        patch = next((side for side in sides if side > 1 and image_size // side <= 8), image_size)
    elif patch not in sides:
        raise InputError(f"patch={patch} does not tile an image of {image_size} pixels: use one of {str(sides)[1:-1]}")
    sizes = {"img_size": image_size, "patch_size": patch, "in_chans": in_channels, "embed_dim": dim, "depth": depth}
    options = {"mlp_ratio": mlp_ratio, "proj_drop_rate": dropout, "drop_path_rate": drop_path, "num_classes": num_classes}
    model = _vision_transformer(sizes | options, heads, head_dim, qkv_bias, representation_size)
    # Small patches differ less than positions do. With timm's 0.02 a small network spends most of its training on finding the
    # positions: 0.85 instead of 0.98 validation accuracy on digits (quaternions, batch 64, 30 epochs, one seed).
    nn.init.normal_(model.pos_embed, std=0.5)
    layouts = {"qkv": MatrixLayout("attention", (1, 3 * heads)), "proj": MatrixLayout("attention", (heads, 1))}
    return convert(model, layers, layout=lambda name, _: layouts.get(name.rpartition("attn.")[2], MatrixLayout()))


def _vision_transformer(
    options: dict[str, Any], heads: int, head_dim: int | None, qkv_bias: bool, representation_size: int | None
) -> Any:
    """Return timm's network over the reals, with heads of any width and a head of one or two layers."""
    from timm.layers import Attention
    from timm.models.vision_transformer import VisionTransformer

    dim, num_classes, dropout = (options[name] for name in ("embed_dim", "num_classes", "proj_drop_rate"))
    model: Any = VisionTransformer(**options, qkv_bias=qkv_bias, num_heads=heads if head_dim is None else 1)
    model.pretrained_cfg = {"first_conv": "patch_embed.proj", "classifier": "head"}
    if head_dim is not None:
        for block in model.blocks:
            block.attn = Attention(dim, heads, attn_head_dim=head_dim, qkv_bias=qkv_bias, proj_drop=dropout)
    if representation_size is not None:
        hidden, last = nn.Linear(dim, representation_size), nn.Linear(representation_size, num_classes)
        model.head = nn.Sequential(hidden, nn.Tanh(), last)
        model.pretrained_cfg["classifier"] = ("head.0", "head.2")
    if head_dim is not None or representation_size is not None:
        model.init_weights()
    return model


def _check_heads(n: int, dim: int, heads: int, head_dim: int | None, representation_size: int | None) -> None:
    """Refuse heads that are not of whole elements, and an MLP head without a hidden channel."""
    check_heads(dim, heads, n, backbone="vit", head_dim=head_dim)
    if representation_size is not None and representation_size < 1:
        raise InputError(f"representation_size={representation_size}: an MLP head has one hidden channel or more")


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
        layers: The factory that knows the algebra.
        variant: timm's name of the model, the part after the slash.
        in_channels: Channels of an image, [B, in_channels, image_size, image_size].
        image_size: Side of an image in pixels.
        num_classes: Logits, [B, num_classes].
        pretrained: Start from timm's weights, projected to the nearest ones over the algebra; needs the network once.
        options: Keyword arguments of ``timm.create_model``, such as ``drop_path_rate``; none that name files or addresses
            or replace timm's configuration of the model.
    """
    import timm as library

    if foreign := sorted(_FOREIGN & options.keys()):
        raise InputError(f"the timm backbone takes no {', '.join(foreign)}: variant and pretrained say which weights are meant")
    if not library.is_model(variant):
        close = difflib.get_close_matches(variant, library.list_models(), n=3)
        hint = f": did you mean {', '.join(close)}?" if close else ""
        raise InputError(f"timm {library.__version__} has no model '{variant}'{hint}")
    if library.get_pretrained_cfg_value(variant, "fixed_input_size"):
        options.setdefault("img_size", image_size)
    sizes: dict[str, Any] = {"in_chans": in_channels, "num_classes": num_classes}
    try:
        with _cached_weights_if_offline(variant if pretrained else None):
            model = library.create_model(variant, pretrained=pretrained, **sizes, **options)
    except InputError:
        raise
    except _REFUSALS as error:
        what = f"'{variant}' for {image_size}-pixel images with {options}"
        raise InputError(f"timm cannot build {what}: {one_line(error)}") from error
    return convert(model, layers, weights="project" if pretrained else "fresh")


@contextmanager
def _cached_weights_if_offline(variant: str | None) -> Iterator[None]:
    """Read the pretrained weights of a variant, if one is given, only from the cache where the Hugging Face hub is unreachable.

    Its client retries the request for each file for 23 seconds, even where there is no network.

    Raises:
        InputError: If the hub is unreachable and the weights are not in the cache.
    """
    if variant is None:
        yield
        return
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import LocalEntryNotFoundError

    before = constants.HF_HUB_OFFLINE
    reason = "the environment forbids the network (HF_HUB_OFFLINE)"
    try:
        if not before:
            get_session().head(constants.ENDPOINT, timeout=5)
    except Exception as error:  # The exceptions are those of its HTTP client, which differs between versions.
        constants.HF_HUB_OFFLINE, reason = True, one_line(error)
    try:
        yield
    except LocalEntryNotFoundError as error:
        text = f"the weights of timm's '{variant}' are not in the cache, and {constants.ENDPOINT} cannot be reached: {reason}"
        raise InputError(text, code="failed") from error
    finally:
        constants.HF_HUB_OFFLINE = before
