"""Hidden units and channels that can be removed, found by torch-pruning (Fang et al. 2023) from the graph of a forward pass."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch_pruning
from torch import Tensor, nn

from zoo.kernels import AxisLayout
from zoo.pruning.layer import LAYERS, Side, elements_of, evaluating, remaining_layout, remove_channels

MATRICES = (*LAYERS, nn.Linear, nn.Conv1d, nn.Conv2d)


class Member(NamedTuple):
    """A layer that a group of units touches, and the unit's channels there: [units] lists of channels."""

    layer: Any
    side: Side
    channels: list[list[int]]


class Units(NamedTuple):
    """Units of one layer: whole algebra elements that one matrix writes and others read.

    Attributes:
        group: torch-pruning's group, which removes channels of the writer wherever they are.
        writer: The layer whose output channels they are.
        channels: The output channels of each unit.
        members: The matrices that write and read them.
    """

    group: Any
    writer: nn.Module
    channels: list[list[int]]
    members: list[Member]

    def remove(self, units: Sequence[int]) -> None:
        """Remove units by their places."""
        self.group.prune(sorted(channel for unit in units for channel in self.channels[unit]))


class _Elements(torch_pruning.BasePruningFunc):  # type: ignore[misc]  # it has no types
    """Tells torch-pruning how to remove channels of a layer of the zoo."""

    def prune_out_channels(self, layer: Any, idxs: Sequence[int]) -> Any:
        """Remove output channels."""
        remove_channels(layer, "out", idxs)
        return layer

    def prune_in_channels(self, layer: Any, idxs: Sequence[int]) -> Any:
        """Remove input channels."""
        remove_channels(layer, "inp", idxs)
        return layer

    def get_out_channels(self, layer: Any) -> int:
        """Count output channels."""
        return int(layer.out.channels)

    def get_in_channels(self, layer: Any) -> int:
        """Count input channels."""
        return int(layer.inp.channels)


def find_units(module: nn.Module, example: Tensor) -> list[Units]:
    """Return the units that can be removed from a module without a change of its inputs and outputs.

    They are what one matrix writes, others read, and batch norms and functions of single channels alone lie between: what
    several matrices write, a residual stream, stays as it is.

    Args:
        module: A module that takes one tensor.
        example: An input of it.
    """
    layers: list[Any] = [one for one in module.modules() if isinstance(one, LAYERS)]
    # A computed weight has a history of its own, which is no layer of the network.
    hooks = [one.weight_module.register_forward_hook(lambda _, args, out: out.detach()) for one in layers]
    try:
        with torch.enable_grad(), evaluating(module):
            pruners = {kind: _Elements() for kind in LAYERS}
            graph = torch_pruning.DependencyGraph().build_dependency(
                module, (example.clone().requires_grad_(),), customized_pruners=pruners, verbose=False
            )
    finally:
        for hook in hooks:
            hook.remove()
    groups = list(graph.get_all_groups(root_module_types=MATRICES))
    return [units for group in groups if (units := _units(graph, group)) is not None]


def _units(graph: Any, group: Any) -> Units | None:
    """Describe a group of torch-pruning; None if it cannot be removed."""
    parts: list[tuple[Any, Side, Any]] = []
    for item in group:
        layer = item.dep.target.module
        if isinstance(layer, MATRICES):
            parts.append((layer, "out" if graph.is_out_channel_pruning_fn(item.dep.handler) else "inp", item))
        elif isinstance(layer, torch_pruning.ops._OutputOp | nn.Parameter) or _mixes_channels(layer):
            return None
    writers = [layer for layer, side, _ in parts if side == "out"]
    plain = all(getattr(layer, "groups", 1) == 1 for layer, *_ in parts)
    if len(writers) != 1 or len(parts) < 2 or not plain:
        return None
    size = _size(writers[0])
    # The reader over the largest algebra decides which channels are one unit.
    n = max(_layout(layer, side).n for layer, side, _ in parts)
    layout = AxisLayout(size, n)
    channels = elements_of(layout)
    unit_of = {channel: unit for unit, own in enumerate(channels) for channel in own}
    members = []
    for layer, side, item in parts:
        own: list[list[int]] = [[] for _ in channels]
        for channel, root in zip(item.idxs, item.root_idxs, strict=True):
            own[unit_of[root]].append(channel)
        if len(own) > 1 and any(remaining_layout(_layout(layer, side), taken) is None for taken in (own[0], own[-1])):
            return None
        members.append(Member(layer, side, own))
    return Units(group, writers[0], channels, members)


def _mixes_channels(layer: nn.Module) -> bool:
    """Whether a layer that is no matrix may do more than change each channel by itself: a norm over all channels, say."""
    return any(True for _ in layer.parameters()) and not isinstance(layer, nn.modules.batchnorm._BatchNorm)


def _size(layer: Any) -> int:
    return int(layer.out.channels if isinstance(layer, LAYERS) else layer.weight.shape[0])


def _layout(layer: Any, side: Side) -> AxisLayout:
    """Return the layout of an axis; every channel of a torch layer is an element."""
    if isinstance(layer, LAYERS):
        found: AxisLayout = getattr(layer, side)
        return found
    return AxisLayout(layer.weight.shape[0 if side == "out" else 1], 1)
