"""Why a matrix cannot or should not be over an algebra."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from torch import nn
from torch.nn.utils import parametrize

from zoo.conversion.heads import CONVERTIBLE
from zoo.errors import InputError
from zoo.kernels import axis_layout
from zoo.layers import Layers


class Target(NamedTuple):
    """One layer to convert: its role, its real channels, and the vectors that lie side by side on either axis."""

    name: str
    module: nn.Module
    role: str
    channels: tuple[int, int]
    blocks: tuple[int, int]
    places: tuple[str, ...]
    """All names of the module, the first one included: shared layers have several."""


def obstacle(target: Target, layers: Layers, unknown: str | None = None, project: bool = False) -> str | None:
    """Say why a layer cannot or should not be converted, or None; ``unknown`` is why its layout is not known."""
    module, n, groups = target.module, layers.n, getattr(target.module, "groups", 1)
    if target.role not in layers.roles:
        ends = target.role in ("stem", "head")
        return target.role if ends else f"role {target.role} is outside the scope {layers.scope}"
    if _is_hooked(module):
        return "has parametrizations or hooks"
    if not _computes_as_torch(module):
        return f"{type(module).__name__} has a forward of its own"
    if isinstance(module, nn.MultiheadAttention) and not module._qkv_same_embed_dim:
        return "queries, keys and values have different sizes"
    if groups > 1 and any(size % (n * groups) for size in target.channels):
        return "depthwise" if groups == target.channels[0] else f"{groups} groups do not hold whole elements"
    if groups > 1 and project and n > 1:
        return "groups are runs of channels, which no projection onto whole elements keeps apart"
    return unknown or _waste(target, n)


def _waste(target: Target, n: int) -> str | None:
    """Say why the layout of a layer does not exist or saves nothing, or None."""
    try:
        inp, out = (axis_layout(size, n, blocks) for size, blocks in zip(target.channels, target.blocks, strict=True))
    except InputError as error:
        return str(error)
    if n * out.elements * inp.elements > out.channels * inp.channels:
        return f"padding {inp.channels} -> {out.channels} channels to n = {n} costs more weights than it saves"
    return None


def _is_hooked(module: nn.Module) -> bool:
    """Whether the weight is computed by somebody else, or somebody watches or changes what goes in and out."""
    return parametrize.is_parametrized(module) or bool(module._forward_hooks) or bool(module._forward_pre_hooks)


def _computes_as_torch(module: nn.Module) -> bool:
    """Whether a subclass still computes what torch's own layer does."""
    kind, base = type(module), next(t for t in CONVERTIBLE if isinstance(module, t))
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in ("forward", "_conv_forward"))


def summary(reasons: Iterable[str], most: int = 3) -> str:
    """Say in one line how often each of the commonest reasons holds."""
    counted = Counter(reasons).most_common()
    said = [f"{reason} ({times})" for reason, times in counted[:most]]
    more = sum(times for _, times in counted[most:])
    return "; ".join(said + [f"other reasons ({more})"] * bool(more)) or "it has none"
