"""Look through a built network: which matrices can be hypercomplex, and why the others cannot."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from typing import NamedTuple

from torch import nn

from zoo.errors import InputError
from zoo.kernels.layout import layout
from zoo.layers import Layers

Skip = Callable[[str, nn.Module], bool]


class Target(NamedTuple):
    """One layer to convert: its role, its real channels, and the vectors that lie side by side on either axis."""

    name: str
    module: nn.Module
    role: str
    channels: tuple[int, int]
    blocks: tuple[int, int]


# How many vectors of one head the projections of an attention module write side by side.
_FUSED = {"qkv": 3, "kv": 2, "q": 1, "k": 1, "v": 1, "q_proj": 1, "k_proj": 1, "v_proj": 1}
_CONVERTIBLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.MultiheadAttention)
_OTHERS = (nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def survey(
    model: nn.Module, layers: Layers, skip: Sequence[str] | Skip = (), project: bool = False
) -> tuple[list[Target], dict[str, str]]:
    """List what `zoo.convert` replaces, and what stays real with the reason; nothing is changed."""
    skipped = skip if callable(skip) else _skip_patterns(model, skip)
    ends = _stem_and_head(model)
    parents = dict(model.named_modules())
    targets: list[Target] = []
    real: dict[str, str] = {}
    for name, module in parents.items():
        if isinstance(module, _OTHERS):
            real[name] = f"{type(module).__name__} has no hypercomplex form here"
        elif isinstance(module, _CONVERTIBLE):
            target = describe(name, module, parents[name.rpartition(".")[0]])
            reason = "skipped" if skipped(name, module) else ends.get(name) or obstacle(target, layers, project)
            if reason:
                real[name] = reason
            else:
                targets.append(target)
    return targets, real


def _skip_patterns(model: nn.Module, patterns: Sequence[str]) -> Skip:
    names = [name for name, _ in model.named_modules()]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            raise InputError(f"skip pattern '{pattern}' fits no module of this model")
    return lambda name, _: any(fnmatch(name, pattern) for pattern in patterns)


def _stem_and_head(model: nn.Module) -> dict[str, str]:
    """What timm itself calls the first layer and the classifier of a model it built."""
    known = getattr(model, "pretrained_cfg", None) or {}
    ends: dict[str, str] = {}
    for key, reason in (("first_conv", "stem"), ("classifier", "head")):
        value = known.get(key) or ()
        ends.update(dict.fromkeys((value,) if isinstance(value, str) else value, reason))
    return ends


def describe(name: str, module: nn.Module, parent: nn.Module) -> Target:
    """Read the role, the sizes and the layout of a layer off its type, its name and its parent."""
    own, heads = name.rpartition(".")[2], getattr(parent, "num_heads", None)
    if isinstance(module, nn.MultiheadAttention):
        return Target(name, module, "attention", (module.embed_dim, 3 * module.embed_dim), (1, 3 * module.num_heads))
    if isinstance(module, nn.Linear):
        role, channels = "ffn", (module.in_features, module.out_features)
    else:
        assert isinstance(module, nn.Conv1d | nn.Conv2d)
        role, channels = "conv", (module.in_channels, module.out_channels)
    if isinstance(heads, int) and own in _FUSED:
        return Target(name, module, "attention", channels, (1, _FUSED[own] * heads))
    if isinstance(heads, int) and own in ("proj", "out_proj"):
        return Target(name, module, "attention", channels, (heads, 1))
    if type(parent).__name__ == "GluMlp" and own == "fc1":
        return Target(name, module, role, channels, (1, 2))
    return Target(name, module, role, channels, (1, 1))


def obstacle(target: Target, layers: Layers, project: bool) -> str | None:
    """Say why a layer cannot or should not be converted, or None."""
    module, n, groups = target.module, layers.n, getattr(target.module, "groups", 1)
    if target.role not in layers.roles:
        return f"role {target.role} is outside the scope {layers.scope}"
    if not _computes_as_torch(module):
        return f"{type(module).__name__} has a forward of its own"
    if isinstance(module, nn.MultiheadAttention) and not module._qkv_same_embed_dim:
        return "queries, keys and values have different sizes"
    if groups > 1 and any(size % (n * groups) for size in target.channels):
        return "depthwise" if groups == target.channels[0] else f"{groups} groups do not hold whole elements"
    if groups > 1 and project and n > 1:
        return "groups are runs of channels, which no projection onto whole elements keeps apart"
    inp, out = (layout(size, n, blocks) for size, blocks in zip(target.channels, target.blocks, strict=True))
    if n * out.elements * inp.elements > out.channels * inp.channels:
        return f"padding {inp.channels} -> {out.channels} channels to n = {n} costs more weights than it saves"
    return None


def _computes_as_torch(module: nn.Module) -> bool:
    """Whether a subclass still computes what torch's own layer does."""
    kind, base = type(module), next(t for t in _CONVERTIBLE if isinstance(module, t))
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in ("forward", "_conv_forward"))
