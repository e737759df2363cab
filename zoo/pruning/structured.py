"""Structured pruning: a network becomes smaller by whole attention heads, hidden units and channels of convolutions."""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import check_rules
from zoo.layers import Linear
from zoo.pruning.layer import evaluating, remove_channels

_HEADS = ("heads", "num_heads")
_WRITERS = {"q": 1, "kv": 2, "qkv": 3, "distance": 1}
"""Matrices that write heads, and how many vectors of a head each writes side by side."""


class Cut(NamedTuple):
    """What was removed from one layer.

    Attributes:
        kind: ``heads`` of attention, hidden ``units`` of linear layers, or ``channels`` of a convolution.
        name: The attention module, or the layer that wrote the units.
        before: Heads before, or real channels.
        after: Heads after, or real channels.
        inputs: Input channels lost by each matrix that read what was removed, by its name. With these set to zero the network
            before computes what the network after does.
        head_dim: Real channels of a head.
        width: Real input channels of the writer.
        is_clamped: Whether the share would have left nothing, so that one was kept.
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
    fine = isinstance(ratio, float) and 0 < ratio < 1
    check_rules((fine, f"ratio={ratio!r}: the share of heads, units and channels to remove must be in (0, 1), such as 0.5"))


@torch.no_grad()
def prune_structure(net: nn.Module, ratio: float, *example: Tensor) -> list[Cut]:
    """Remove attention heads, hidden units of MLPs and channels of convolutions, in place; the residual width stays.

    Every layer loses the same share: round(ratio k) of k heads or units, half to even, and at least one is kept. A unit is a
    whole algebra element, with all its n channels. The score of a head or unit is the L2 norm of the real matrices that write
    and read it; the lowest go first, padded elements before others, ties by position. Heads are those of attention built from
    zoo layers; units and channels are found by torch-pruning in any network (Fang et al. 2023).

    Args:
        net: The network. The classifier, and layers whose shapes depend on something else, are not changed.
        ratio: Share, in (0, 1).
        example: Inputs of the network, of any batch size.

    Returns:
        A `Cut` for every layer that can be pruned, in the order of the network, even if the share was too small to remove one.

    Raises:
        InputError: If the ratio is out of range, nothing can be removed, or a weight is not finite.

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
    order = {name: index for index, name in enumerate(names.values())}
    cuts.sort(key=lambda cut: order[cut.name])
    check_rules(
        (bool(cuts), f"nothing to prune: {type(net).__name__} has no heads, hidden units or channels that can be removed"),
        (any(cut.after < cut.before for cut in cuts), f"ratio={ratio} removes nothing: no layer has enough heads or units"),
    )
    return cuts


def _count(ratio: float, total: int) -> tuple[int, bool]:
    """Return how many of the units to remove, and whether the share alone would have left none."""
    count = round(Fraction(str(ratio)) * total)
    return min(count, total - 1), count >= total


def _lowest(scores: Tensor, count: int, name: str) -> list[int]:
    check_rules((bool(scores.isfinite().all()), f"{name} holds NaN or infinity: training diverged, so nothing can be ranked"))
    return sorted(scores.argsort(stable=True)[:count].tolist())


def _squares(layer: Any, side: str) -> Tensor:
    """Return the sum of squares of each channel's row (``out``) or column (``inp``) of the real matrix, [channels]."""
    matrix = layer.weight.detach().double()
    return torch.as_tensor(matrix.square().transpose(0, int(side == "inp")).flatten(1).sum(1))


# --- heads ---


def _heads_of(module: nn.Module) -> int:
    """Return the number of heads of an attention module built from known zoo layers, 0 for other modules."""
    heads = next((value for key in _HEADS if type(value := getattr(module, key, None)) is int), 0)
    modules = ((name, child) for name, child in module.named_children() if not isinstance(child, Algebra))
    children: dict[str, Any] = {name: child for name, child in modules if any(True for _ in child.parameters())}
    writers, known = children.keys() & _WRITERS.keys(), {*_WRITERS, "proj"}
    if not heads or "proj" not in children or not writers or not children.keys() <= known:
        return 0
    direct = [p for p in module._parameters.values() if p is not None]
    if any(p.ndim != 2 or len(p) != heads for p in direct) or not all(isinstance(x, Linear) for x in children.values()):
        return 0
    fits = all(children[name].out.blocks == _WRITERS[name] * heads for name in writers)
    return heads if fits and children["proj"].inp.blocks == heads else 0


def _prune_heads(name: str, module: Any, ratio: float) -> Cut:
    """Remove heads of one attention module: their queries, keys and values, and the inputs of the projection."""
    heads, proj = _heads_of(module), module.proj
    count, clamped = _count(ratio, heads)
    size = proj.inp.size
    scores = _squares(proj, "inp").view(heads, -1).sum(1)
    for key, child in module.named_children():
        if key in _WRITERS:
            scores += _squares(child, "out").view(_WRITERS[key], heads, -1).sum((0, 2))
    removed = _lowest(scores, count, name)
    kept = [head for head in range(heads) if head not in removed]

    def channels(parts: int) -> list[int]:
        return [(part * heads + head) * size + i for part in range(parts) for head in removed for i in range(size)]

    cut = Cut("heads", name, heads, len(kept), {f"{name}.proj": channels(1)}, size, module.proj.out.channels, clamped)
    if removed:
        for key, child in module.named_children():
            if key in _WRITERS:
                remove_channels(child, "out", channels(_WRITERS[key]))
        remove_channels(proj, "inp", channels(1))
        for key, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, key, nn.Parameter(parameter[kept], requires_grad=parameter.requires_grad))
        new = dict.fromkeys(_HEADS, len(kept)) | {"attn_dim": len(kept) * size}  # timm's name for the channels of all heads
        vars(module).update({key: value for key, value in new.items() if key in vars(module)})
    return cut


# --- units ---


def _chains(net: nn.Module, example: tuple[Tensor, ...]) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield MLPs and stacks of convolutions (several matrices, no heads), innermost first, each with an input."""
    from zoo.pruning.units import MATRICES

    inputs: dict[nn.Module, Tensor] = {}

    def remember(module: nn.Module) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            if len(args) == 1 and isinstance(args[0], Tensor) and args[0].is_floating_point():
                inputs.setdefault(module, args[0][:1].detach().clone())

        return hook

    hooks = []
    for name, module in net.named_modules():
        matrices = sum(isinstance(child, MATRICES) for child in module.children())
        attends = any(hasattr(inner, key) for inner in module.modules() for key in _HEADS)
        if matrices > 1 and not attends and "head" not in name.split("."):
            hooks.append(module.register_forward_pre_hook(remember(module)))
    try:
        with evaluating(net):
            net(*example)
    finally:
        for hook in hooks:
            hook.remove()
    yield from reversed(inputs.items())


def _prune_units(module: nn.Module, example: Tensor, ratio: float, names: Mapping[nn.Module, str], done: set[str]) -> list[Cut]:
    """Remove units of a module, except those already handled in an inner module."""
    from zoo.pruning.units import find_units

    cuts = []
    for units in find_units(module, example):
        writer: Any = units.writer
        if names[writer] in done:
            continue
        name, total, before = names[writer], len(units.channels), sum(map(len, units.channels))
        count, clamped = _count(ratio, total)
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
        cuts.append(Cut(kind, name, before, after, inputs, 0, width, clamped))
    return cuts
