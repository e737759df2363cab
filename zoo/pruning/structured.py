"""Structured pruning of attention heads, hidden units and channels of convolutions."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import check_rules
from zoo.layers import Linear
from zoo.pruning.layer import evaluating, remove_channels
from zoo.pruning.masks import check_finite

_HEAD_COUNTS = ("heads", "num_heads")
_HEAD_WRITERS = {"q": 1, "kv": 2, "qkv": 3, "distance": 1}
"""Matrices that write heads, and the number of vectors per head that each writes side by side."""


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
    is_ratio = isinstance(ratio, float) and 0 < ratio < 1
    check_rules((is_ratio, f"ratio={ratio!r}: the fraction of heads, units and channels must be in (0, 1), such as 0.5"))


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
        InputError: If the ratio is out of range, nothing can be removed, or a weight is NaN or infinite.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> [(cut.before, cut.after) for cut in prune_structure(net, 0.5, torch.zeros(1, 4))], net[2]
        ([(8, 4)], Linear(in_features=4, out_features=2, bias=True))
    """
    check_ratio(ratio)
    names = {module: name for name, module in net.named_modules()}
    cuts = [_prune_heads(name, module, ratio) for name, module in net.named_modules() if _heads_of(module)]
    for module, inputs in _chains(net, example):
        cuts += _prune_units(module, inputs, ratio, names, {cut.name for cut in cuts})
    order = list(names.values())
    cuts.sort(key=lambda cut: order.index(cut.name))
    check_rules(
        (bool(cuts), f"nothing to prune: {type(net).__name__} has no heads, hidden units or channels that can be removed"),
        (any(cut.after < cut.before for cut in cuts), f"ratio={ratio} removes nothing: no layer has enough heads or units"),
    )
    return cuts


def _count(ratio: float, total: int) -> tuple[int, bool]:
    """Return the number of units to remove, and whether it was reduced to keep one."""
    count = round(Fraction(str(ratio)) * total)
    return min(count, total - 1), count >= total


def _lowest(scores: Tensor, count: int, name: str) -> list[int]:
    check_finite(scores, name)
    return sorted(scores.argsort(stable=True)[:count].tolist())


def _squares(layer: Any, side: str) -> Tensor:
    """Return the sum of squares of each channel's row (``out``) or column (``inp``) of the real matrix, [channels]."""
    matrix = layer.weight.detach().double()
    return torch.as_tensor(matrix.square().transpose(0, int(side == "inp")).flatten(1).sum(1))


# --- heads ---


def _heads_of(module: nn.Module) -> int:
    """Return the number of heads of an attention module built from known zoo layers, or 0 for other modules."""
    heads = next((value for key in _HEAD_COUNTS if type(value := getattr(module, key, None)) is int), 0)
    modules = ((name, child) for name, child in module.named_children() if not isinstance(child, Algebra))
    children: dict[str, Any] = {name: child for name, child in modules if any(True for _ in child.parameters())}
    writers = children.keys() & _HEAD_WRITERS.keys()
    if not heads or not writers or children.keys() != {*writers, "proj"}:
        return 0
    direct = [p for p in module._parameters.values() if p is not None]
    if any(p.ndim != 2 or len(p) != heads for p in direct) or not all(isinstance(x, Linear) for x in children.values()):
        return 0
    has_blocks = all(children[name].out.blocks == _HEAD_WRITERS[name] * heads for name in writers)
    return heads if has_blocks and children["proj"].inp.blocks == heads else 0


def _prune_heads(name: str, module: Any, ratio: float) -> Cut:
    """Remove heads of an attention module: their queries, keys and values, and the inputs of the projection."""
    heads, proj = _heads_of(module), module.proj
    writers = [(child, _HEAD_WRITERS[key]) for key, child in module.named_children() if key in _HEAD_WRITERS]
    count, is_clamped = _count(ratio, heads)
    size = proj.inp.size
    scores = _squares(proj, "inp").view(heads, -1).sum(1)
    for child, parts in writers:
        scores += _squares(child, "out").view(parts, heads, -1).sum((0, 2))
    removed = _lowest(scores, count, name)
    remaining = [head for head in range(heads) if head not in removed]

    def channels(parts: int) -> list[int]:
        return [(part * heads + head) * size + i for part in range(parts) for head in removed for i in range(size)]

    cut = Cut("heads", name, heads, len(remaining), {f"{name}.proj": channels(1)}, size, proj.out.channels, is_clamped)
    if removed:
        for child, parts in writers:
            remove_channels(child, "out", channels(parts))
        remove_channels(proj, "inp", channels(1))
        for key, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, key, nn.Parameter(parameter[remaining], requires_grad=parameter.requires_grad))
        sizes = dict.fromkeys(_HEAD_COUNTS, len(remaining)) | {"attn_dim": len(remaining) * size}  # attn_dim is timm's
        vars(module).update({key: value for key, value in sizes.items() if key in vars(module)})
    return cut


# --- units ---


def _chains(net: nn.Module, example: tuple[Tensor, ...]) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield MLPs and stacks of convolutions (several matrices, no heads) with an input, innermost first."""
    from zoo.pruning.units import MATRIX_TYPES

    inputs: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, args: tuple[Any, ...]) -> None:
        if len(args) == 1 and isinstance(args[0], Tensor) and args[0].is_floating_point():
            inputs.setdefault(module, args[0][:1].detach().clone())

    hooks = []
    for name, module in net.named_modules():
        matrices = sum(isinstance(child, MATRIX_TYPES) for child in module.children())
        has_heads = any(hasattr(inner, key) for inner in module.modules() for key in _HEAD_COUNTS)
        if matrices > 1 and not has_heads and "head" not in name.split("."):
            hooks.append(module.register_forward_pre_hook(record))
    try:
        with evaluating(net):
            net(*example)
    finally:
        for hook in hooks:
            hook.remove()
    yield from reversed(inputs.items())


def _prune_units(module: nn.Module, example: Tensor, ratio: float, names: Mapping[nn.Module, str], done: set[str]) -> list[Cut]:
    """Remove units of a module, except those whose writer was pruned in an inner module."""
    from zoo.pruning.units import find_units

    cuts = []
    for units in find_units(module, example):
        writer: Any = units.writer
        if names[writer] in done:
            continue
        name, total, before = names[writer], len(units.channels), sum(map(len, units.channels))
        count, is_clamped = _count(ratio, total)
        scores = torch.zeros(total, dtype=torch.float64)
        for layer, side, channels in units.members:
            squares = _squares(layer, side).cpu()
            scores += torch.stack([squares[unit].sum() for unit in channels])
        largest = max(map(len, units.channels))
        padded = torch.tensor([len(unit) < largest for unit in units.channels])
        removed = _lowest(scores.masked_fill(padded & scores.isfinite(), -1.0), count, name)
        inputs = {
            names[layer]: sorted(channel for unit in removed for channel in channels[unit])
            for layer, side, channels in units.members
            if side == "inp"
        }
        kind = "units" if isinstance(writer, nn.Linear | Linear) else "channels"
        width = writer.in_features if kind == "units" else writer.in_channels
        if removed:
            units.remove(removed)
        after = before - sum(len(units.channels[unit]) for unit in removed)
        cuts.append(Cut(kind, name, before, after, inputs, 0, width, is_clamped))
    return cuts
