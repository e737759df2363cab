"""Remove channels of a layer over an algebra, in whole elements."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn

from zoo.errors import InputError
from zoo.kernels import AxisLayout
from zoo.layers import Conv1d, Conv2d, Linear

Side = Literal["inp", "out"]
LAYERS = (Linear, Conv1d, Conv2d)
_SIZE_NAMES = {"inp": ("in_features", "in_channels"), "out": ("out_features", "out_channels")}


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Switch a network to evaluation mode, and restore the mode of each module afterwards."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def elements_of(layout: AxisLayout) -> list[list[int]]:
    """Return the real channels of each element of an axis; a padded element has fewer than n."""
    elements: list[list[int]] = [[] for _ in range(layout.elements)]
    for channel in range(layout.channels):
        block, offset = divmod(channel, layout.size)
        elements[block * layout.width + offset % layout.width].append(channel)
    return elements


def remaining_layout(layout: AxisLayout, channels: Iterable[int]) -> tuple[list[int], AxisLayout] | None:
    """Return the elements that remain after removing channels, and their layout; None if these are not whole elements.

    If the axis has several blocks (heads), only whole blocks can be removed.
    """
    removed, elements = set(channels), elements_of(layout)
    remaining = [index for index, element in enumerate(elements) if not removed.issuperset(element)]
    size = sum(len(elements[index]) for index in remaining)
    if not size or size + len(removed) != layout.channels:
        return None
    blocks = len({index // layout.width for index in remaining})
    if layout.blocks > 1 and len(remaining) != blocks * layout.width:
        return None
    new = AxisLayout(size, layout.n, blocks)
    return (remaining, new) if new.elements == len(remaining) else None


def remove_channels(layer: Any, side: Side, channels: Iterable[int]) -> None:
    """Remove real channels of a layer over an algebra and of its bias, in place."""
    removed, layout = set(channels), getattr(layer, side)
    remaining = remaining_layout(layout, removed)
    if remaining is None:
        count = f"{len(removed)} of {layout.channels} channels"
        raise InputError(f"{count} are not whole elements of an algebra with n = {layout.n}", code="unsupported")
    elements, new = remaining
    layer.weight_module.prune_axis(side, torch.tensor(elements), new)
    for name in _SIZE_NAMES[side]:
        if hasattr(layer, name):
            setattr(layer, name, new.channels)
    if side == "out" and layer.bias is not None:
        bias = layer.bias.detach()[[channel for channel in range(layout.channels) if channel not in removed]]
        layer.bias = nn.Parameter(bias, requires_grad=layer.bias.requires_grad)
