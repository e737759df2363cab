"""Remove channels of one layer: of a layer of the zoo as whole algebra elements, for torch-pruning and for heads."""

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
_NAMES = {"inp": ("in_features", "in_channels"), "out": ("out_features", "out_channels")}


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode, and every module of it back in its own."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def elements_of(layout: AxisLayout) -> list[list[int]]:
    """Return the real channels of each element of an axis; those of an element that is padded are fewer than n."""
    found: list[list[int]] = [[] for _ in range(layout.elements)]
    for channel in range(layout.channels):
        block, place = divmod(channel, layout.size)
        found[block * layout.width + place % layout.width].append(channel)
    return found


def remaining_layout(layout: AxisLayout, channels: Iterable[int]) -> tuple[list[int], AxisLayout] | None:
    """Return the elements that are left without some channels, and their layout; None if these are not whole elements.

    Of several blocks only whole ones can go, the heads of attention.
    """
    removed, elements = set(channels), elements_of(layout)
    kept = [place for place, own in enumerate(elements) if not removed.issuperset(own)]
    left = [channel for place in kept for channel in elements[place]]
    if not left or len(left) + len(removed) != layout.channels:
        return None
    blocks = len({place // layout.width for place in kept})
    if layout.blocks > 1 and len(kept) != blocks * layout.width:
        return None
    new = AxisLayout(len(left), layout.n, blocks)
    return (kept, new) if new.elements == len(kept) else None


def remove_channels(layer: Any, side: Side, channels: Iterable[int]) -> None:
    """Remove real channels of a layer of the zoo, its bias included, in place.

    Raises:
        InputError: If they are not whole elements.
    """
    removed = set(channels)
    layout = getattr(layer, side)
    found = remaining_layout(layout, removed)
    if found is None:
        raise InputError(
            f"{len(removed)} of {layout.channels} channels are not whole elements of an algebra with n = {layout.n}"
        )
    kept, new = found
    layer.weight_module.prune_axis(side, torch.tensor(kept), new)
    for name in _NAMES[side]:
        if hasattr(layer, name):
            setattr(layer, name, new.channels)
    if side == "out" and layer.bias is not None:
        left = torch.tensor([channel for channel in range(layout.channels) if channel not in removed])
        bias = layer.bias.detach()[left.to(layer.bias.device)]
        layer.bias = nn.Parameter(bias, requires_grad=layer.bias.requires_grad)
