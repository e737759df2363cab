"""Structured pruning of attention heads, hidden units and channels of convolutions, in whole algebra elements."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from zoo.algebras import Algebra
from zoo.conversion.attention_layout import NUM_HEADS, num_heads
from zoo.conversion.replacement import stem_and_head
from zoo.errors import InputError, one_line
from zoo.kernels import AxisLayout
from zoo.nn import Conv1d, Conv2d, Linear
from zoo.pruning.masks import check_finite

Side = Literal["inp", "out"]
Layer = Linear | Conv1d | Conv2d
Matrix = Layer | nn.Linear | nn.Conv1d | nn.Conv2d
_SIZE_NAMES = {"inp": ("in_features", "in_channels"), "out": ("out_features", "out_channels")}


class Cut(NamedTuple):
    """The part that was removed from a layer.

    Attributes:
        kind: ``heads`` of attention, hidden ``units`` of linear layers, or ``channels`` of a convolution.
        name: The attention module, or the layer that wrote the units.
        before: Heads or real channels before pruning.
        after: Heads or real channels after pruning.
        inputs: Removed input channels of each matrix that read the removed part, by its name. The unpruned network with these
            channels set to zero computes the same as the pruned one.
        head_dim: Real channels of a head.
        width: Real input channels of the writer.
        is_clamped: Whether all would have been removed, so that one was kept.
    """

    kind: str
    name: str
    before: int
    after: int
    inputs: dict[str, list[int]]
    head_dim: int = 0
    width: int = 0
    is_clamped: bool = False


def check_ratio(ratio: float) -> None:
    """Check that a ratio is in (0, 1)."""
    if not isinstance(ratio, float) or not 0 < ratio < 1:
        raise InputError(f"ratio={ratio!r}: the fraction of heads, units and channels must be in (0, 1), such as 0.5")


@torch.no_grad()
def prune_structure(net: nn.Module, ratio: float, *example: Tensor) -> list[Cut]:
    """Remove attention heads, hidden units of MLPs and channels of convolutions in place, but not of the residual stream.

    Each layer loses round(ratio k) of k heads or units, half to even, and keeps at least one. A unit is a whole algebra
    element, with all its n channels. The score of a head or unit is the L2 norm of the real matrices that write and read it;
    the lowest are removed first, padded elements before others, ties by position. Heads are those of attention built from
    zoo layers; units and channels are found by torch-pruning in any network (Fang et al. 2023).

    Args:
        net: The network. The classifier and layers whose shapes depend on other parts are not changed.
        ratio: Fraction to remove, in (0, 1).
        example: Inputs of the network, of any batch size.

    Returns:
        A `Cut` for every layer that can be pruned, in the order of the network, also if nothing was removed from it.

    Raises:
        InputError: If the ratio is out of range, nothing can be removed, a weight is NaN or infinite, or the attention of the
            network fixes its number of heads elsewhere too.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> [(cut.before, cut.after) for cut in prune_structure(net, 0.5, torch.zeros(1, 4))], net[2]
        ([(8, 4)], Linear(in_features=4, out_features=2, bias=True))
    """
    check_ratio(ratio)
    names = {module: name for name, module in net.named_modules()}
    cuts = [_prune_heads(name, module, ratio) for name, module in net.named_modules() if _heads_of(module)]
    try:
        chains = [*_chains(net, example)]
    except RuntimeError as error:
        if not any(cut.after < cut.before for cut in cuts):
            raise
        text = f"{type(net).__name__} does not run with fewer heads, and is now unusable: {one_line(error)}"
        raise InputError(text, code="unsupported") from error
    for module, inputs in chains:
        done = {cut.name for cut in cuts}
        cuts += [_prune_units(units, ratio, names) for units in _find_units(module, inputs) if names[units.writer] not in done]
    order = list(names.values())
    cuts.sort(key=lambda cut: order.index(cut.name))
    if not cuts:
        raise InputError(f"nothing to prune: {type(net).__name__} has no heads, hidden units or channels that can be removed")
    if not any(cut.after < cut.before for cut in cuts):
        raise InputError(f"ratio={ratio} removes nothing: no layer has enough heads or units")
    return cuts


def _count(ratio: float, total: int) -> tuple[int, bool]:
    """Return the number of units to remove, and whether it was reduced to keep one."""
    count = round(Fraction(str(ratio)) * total)
    return min(count, total - 1), count >= total


def _lowest(scores: Tensor, count: int, name: str) -> list[int]:
    check_finite(scores, name)
    return sorted(scores.argsort(stable=True)[:count].tolist())


def _squares(layer: Matrix, side: str) -> Tensor:
    """Return the sum of squares of each channel's row (``out``) or column (``inp``) of the real matrix, [channels]."""
    matrix = layer.weight.detach().double()
    return torch.as_tensor(matrix.square().transpose(0, int(side == "inp")).flatten(1).sum(1))


# --- channels of a layer over an algebra ---


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


def remove_channels(layer: Layer, side: Side, channels: Iterable[int]) -> None:
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


# --- heads ---


def _heads_of(module: nn.Module) -> int:
    """Return the number of heads of an attention module built from known zoo layers, or 0 for other modules."""
    heads = num_heads(module)
    modules = ((name, child) for name, child in module.named_children() if not isinstance(child, Algebra))
    children = {name: child for name, child in modules if any(True for _ in child.parameters())}
    proj = children.pop("proj", None)
    if not heads or not children or not isinstance(proj, Linear) or proj.inp.blocks != heads:
        return 0
    if any(p.ndim != 2 or len(p) != heads for p in module.parameters(recurse=False)):
        return 0
    write_heads = all(isinstance(child, Linear) and child.out.blocks % heads == 0 for child in children.values())
    return heads if write_heads else 0


def _prune_heads(name: str, module: Any, ratio: float) -> Cut:
    """Remove heads of an attention module: their queries, keys and values, and the inputs of the projection."""
    heads, proj = _heads_of(module), module.proj
    layers = (child for child in module.children() if isinstance(child, Linear) and child is not proj)
    writers = [(child, child.out.blocks // heads) for child in layers]  # with the vectors of a head that each writes
    count, is_clamped = _count(ratio, heads)
    size = proj.inp.size
    scores = _squares(proj, "inp").view(heads, -1).sum(1)
    for child, parts in writers:
        scores += _squares(child, "out").view(parts, heads, -1).sum((0, 2))
    removed = _lowest(scores, count, name)
    remaining = [head for head in range(heads) if head not in removed]

    def channels(parts: int) -> list[int]:
        return [(part * heads + head) * size + i for part in range(parts) for head in removed for i in range(size)]

    if removed:
        for child, parts in writers:
            remove_channels(child, "out", channels(parts))
        remove_channels(proj, "inp", channels(1))
        for key, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, key, nn.Parameter(parameter[remaining], requires_grad=parameter.requires_grad))
        sizes = dict.fromkeys(NUM_HEADS, len(remaining)) | {"attn_dim": len(remaining) * size}  # attn_dim is timm's
        vars(module).update({key: value for key, value in sizes.items() if key in vars(module)})
    return Cut("heads", name, heads, len(remaining), {f"{name}.proj": channels(1)}, size, proj.out.channels, is_clamped)


# --- units: whole elements that one matrix writes and others read ---


class _Units(NamedTuple):
    """The removable units that a layer writes, with its output channels of each unit.

    ``members`` are the matrices that write or read the units, with their channels of each unit; ``group`` is the group of
    torch-pruning, which removes channels of the writer and of all dependent layers.
    """

    group: Any
    writer: Matrix
    channels: list[list[int]]
    members: list[tuple[Matrix, Side, list[list[int]]]]


class _Elements:
    """Tell torch-pruning how to remove channels of zoo layers."""

    def prune_out_channels(self, layer: Layer, idxs: Sequence[int]) -> Layer:
        remove_channels(layer, "out", idxs)
        return layer

    def prune_in_channels(self, layer: Layer, idxs: Sequence[int]) -> Layer:
        remove_channels(layer, "inp", idxs)
        return layer

    def get_out_channels(self, layer: Layer) -> int:
        return layer.out.channels

    def get_in_channels(self, layer: Layer) -> int:
        return layer.inp.channels


@contextmanager
def _evaluating(net: nn.Module, hooks: Iterable[RemovableHandle]) -> Iterator[None]:
    """Switch a network to evaluation mode; afterwards restore the mode of each module and remove the hooks."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for hook in hooks:
            hook.remove()


def _chains(net: nn.Module, example: tuple[Tensor, ...]) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield MLPs and stacks of convolutions (several matrices, no heads) with an input, innermost first."""
    inputs: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, args: tuple[object, ...]) -> None:
        if len(args) == 1 and isinstance(args[0], Tensor) and args[0].is_floating_point():
            inputs.setdefault(module, args[0][:1].detach().clone())

    hooks = []
    classifiers = [name for name, role in stem_and_head(net).items() if role == "head"]
    for name, module in net.named_modules():
        matrices = sum(isinstance(child, Matrix) for child in module.children())
        has_heads = any(num_heads(inner) is not None for inner in module.modules())
        is_head = name and any(classifier.startswith(f"{name}.") for classifier in classifiers)
        if matrices > 1 and not has_heads and not is_head:
            hooks.append(module.register_forward_pre_hook(record))
    with _evaluating(net, hooks):
        net(*example)
    yield from reversed(inputs.items())


def _find_units(module: nn.Module, example: Tensor) -> list[_Units]:
    """Return the units that can be removed from a module without changing its inputs and outputs.

    A unit is written by one matrix and read by others, with only batch norms and elementwise functions in between. Channels
    that several matrices write, as in a residual stream, are not units.
    """
    import torch_pruning

    layers = [layer for layer in module.modules() if isinstance(layer, Layer)]
    # Hide the computation of weights from their components from torch-pruning.
    hooks = [layer.weight_module.register_forward_hook(lambda _, args, out: out.detach()) for layer in layers]
    with torch.enable_grad(), _evaluating(module, hooks):
        pruners, inputs = {kind: _Elements() for kind in get_args(Layer)}, (example.clone().requires_grad_(),)
        graph = torch_pruning.DependencyGraph().build_dependency(module, inputs, customized_pruners=pruners, verbose=False)
    groups = graph.get_all_groups(root_module_types=get_args(Matrix))
    return [units for group in list(groups) if (units := _units_of(graph, group, torch_pruning.ops._OutputOp)) is not None]


def _units_of(graph: Any, group: Any, output: type) -> _Units | None:
    """Return the units of a group of torch-pruning; None if they cannot be removed."""
    parts: list[tuple[Matrix, Side, Any]] = []
    for item in group:
        layer = item.dep.target.module
        if isinstance(layer, Matrix):
            parts.append((layer, "out" if graph.is_out_channel_pruning_fn(item.dep.handler) else "inp", item))
        elif isinstance(layer, output | nn.Parameter) or _mixes_channels(layer):
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
        members.append((layer, side, by_unit))
    return _Units(group, writers[0], channels, members)


def _mixes_channels(layer: nn.Module) -> bool:
    """Return whether a layer other than a matrix, such as a layer norm, may mix channels."""
    return any(True for _ in layer.parameters()) and not isinstance(layer, nn.modules.batchnorm._BatchNorm)


def _layout(layer: Matrix, side: Side) -> AxisLayout:
    """Return the layout of an axis; each channel of a torch layer is an element."""
    if isinstance(layer, Layer):
        return layer.out if side == "out" else layer.inp
    return AxisLayout(layer.weight.shape[0 if side == "out" else 1], 1)


def _prune_units(units: _Units, ratio: float, names: Mapping[nn.Module, str]) -> Cut:
    """Remove the units with the lowest scores."""
    writer, sizes = units.writer, torch.tensor([len(unit) for unit in units.channels])
    count, is_clamped = _count(ratio, len(sizes))
    scores = torch.zeros(len(sizes), dtype=torch.float64)
    for layer, side, channels in units.members:
        squares = _squares(layer, side).cpu()
        scores += torch.stack([squares[unit].sum() for unit in channels])
    is_padded = sizes < sizes.max()
    removed = _lowest(scores.masked_fill(is_padded & scores.isfinite(), -1.0), count, names[writer])
    inputs = {
        names[layer]: sorted(channel for unit in removed for channel in channels[unit])
        for layer, side, channels in units.members
        if side == "inp"
    }
    kind = "units" if isinstance(writer, nn.Linear | Linear) else "channels"
    width = writer.in_features if isinstance(writer, nn.Linear | Linear) else writer.in_channels
    removed_channels = sorted(channel for unit in removed for channel in units.channels[unit])
    if removed_channels:
        units.group.prune(removed_channels)
    before = int(sizes.sum())
    return Cut(kind, names[writer], before, before - len(removed_channels), inputs, 0, width, is_clamped)
