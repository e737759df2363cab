"""Find removable hidden units and channels with torch-pruning (Fang et al. 2023), from the graph of a forward pass."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch_pruning
from torch import Tensor, nn

from zoo.kernels import AxisLayout
from zoo.pruning.layer import LAYERS, Side, elements_of, evaluating, remaining_layout, remove_channels

MATRIX_TYPES = (*LAYERS, nn.Linear, nn.Conv1d, nn.Conv2d)


class Member(NamedTuple):
    """A layer that writes or reads the units, with the list of its channels for each unit."""

    layer: Any
    side: Side
    channels: list[list[int]]


class Units(NamedTuple):
    """The removable units of a layer: whole algebra elements that one matrix writes and others read.

    Attributes:
        group: The group of torch-pruning, which removes channels of the writer and of all dependent layers.
        writer: The layer that writes the units.
        channels: The output channels of each unit.
        members: The matrices that write and read the units.
    """

    group: Any
    writer: nn.Module
    channels: list[list[int]]
    members: list[Member]

    def remove(self, units: Sequence[int]) -> None:
        """Remove units by their indices."""
        self.group.prune(sorted(channel for unit in units for channel in self.channels[unit]))


class _Elements(torch_pruning.BasePruningFunc):  # type: ignore[misc]  # untyped library
    """Tell torch-pruning how to remove channels of zoo layers."""

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
    """Return the units that can be removed from a module without changing its inputs and outputs.

    A unit is written by one matrix and read by others, with only batch norms and elementwise functions in between. Channels
    that several matrices write, as in a residual stream, are not units.
    """
    layers: list[Any] = [layer for layer in module.modules() if isinstance(layer, LAYERS)]
    # Hide the computation of weights from their components from torch-pruning.
    hooks = [layer.weight_module.register_forward_hook(lambda _, args, out: out.detach()) for layer in layers]
    try:
        with torch.enable_grad(), evaluating(module):
            pruners = {kind: _Elements() for kind in LAYERS}
            graph = torch_pruning.DependencyGraph().build_dependency(
                module, (example.clone().requires_grad_(),), customized_pruners=pruners, verbose=False
            )
    finally:
        for hook in hooks:
            hook.remove()
    groups = list(graph.get_all_groups(root_module_types=MATRIX_TYPES))
    return [units for group in groups if (units := _units(graph, group)) is not None]


def _units(graph: Any, group: Any) -> Units | None:
    """Return the units of a group of torch-pruning; None if they cannot be removed."""
    parts: list[tuple[Any, Side, Any]] = []
    for item in group:
        layer = item.dep.target.module
        if isinstance(layer, MATRIX_TYPES):
            parts.append((layer, "out" if graph.is_out_channel_pruning_fn(item.dep.handler) else "inp", item))
        elif isinstance(layer, torch_pruning.ops._OutputOp | nn.Parameter) or _mixes_channels(layer):
            return None
    writers = [layer for layer, side, _ in parts if side == "out"]
    is_grouped = any(getattr(layer, "groups", 1) > 1 for layer, *_ in parts)
    if len(writers) != 1 or len(parts) < 2 or is_grouped:
        return None
    # The largest algebra determines which channels form a unit.
    n = max(_layout(layer, side).n for layer, side, _ in parts)
    channels = elements_of(AxisLayout(_layout(writers[0], "out").channels, n))
    unit_of = {channel: unit for unit, element in enumerate(channels) for channel in element}
    members = []
    for layer, side, item in parts:
        by_unit: list[list[int]] = [[] for _ in channels]
        for channel, root in zip(item.idxs, item.root_idxs, strict=True):
            by_unit[unit_of[root]].append(channel)
        first_and_last = by_unit[0], by_unit[-1]
        if len(by_unit) > 1 and any(remaining_layout(_layout(layer, side), unit) is None for unit in first_and_last):
            return None
        members.append(Member(layer, side, by_unit))
    return Units(group, writers[0], channels, members)


def _mixes_channels(layer: nn.Module) -> bool:
    """Return whether a layer other than a matrix, such as a layer norm, may mix channels."""
    return any(True for _ in layer.parameters()) and not isinstance(layer, nn.modules.batchnorm._BatchNorm)


def _layout(layer: Any, side: Side) -> AxisLayout:
    """Return the layout of an axis; each channel of a torch layer is an element."""
    if isinstance(layer, LAYERS):
        layout: AxisLayout = getattr(layer, side)
        return layout
    return AxisLayout(layer.weight.shape[0 if side == "out" else 1], 1)
