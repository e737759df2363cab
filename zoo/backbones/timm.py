"""Any model that timm can build, converted to the algebra."""

import difflib
import pickle
from typing import Any

from torch import nn

from zoo.backbones.recipe import recipe
from zoo.conversion import convert
from zoo.errors import InputError
from zoo.layers import Layers

# Options of timm.create_model that name files and addresses, or replace what timm itself knows of a model.
_FOREIGN = {"checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "pretrained_strict"}
# What timm's models raise for arguments and weights they cannot take.
_REFUSALS = (TypeError, ValueError, AssertionError, RuntimeError, OSError, LookupError, AttributeError, pickle.UnpicklingError)


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

    Raises:
        InputError: If timm has no such model, or cannot build it with these options for images of this size, or no matrix of
            it can be converted.
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
    try:
        model = library.create_model(variant, pretrained=pretrained, in_chans=in_channels, num_classes=num_classes, **options)
    except _REFUSALS as error:
        what = f"'{variant}' for {image_size}-pixel images with {options}"
        raise InputError(f"timm cannot build {what}: {one_line(error)}") from error
    return convert(model, layers, weights="project" if pretrained else "fresh")


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its type."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
