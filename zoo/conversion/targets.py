"""Which matrices of a built network can be over an algebra, and why the others cannot."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from typing import Any, NamedTuple

from torch import nn
from torch.nn.utils import parametrize

from zoo.algebras import Algebra
from zoo.conversion.attention_layout import TORCH_LAYERS, MatrixLayout, channels, is_matrix, matrix_layout
from zoo.errors import InputError
from zoo.kernels import axis_layout
from zoo.layers import Layers

Skip = Callable[[str, nn.Module], bool]
Layout = Callable[[str, nn.Module], MatrixLayout]

_HEADS = ("classifier", "score", "qa_outputs")
"""Names of the last layer in Hugging Face's models that classify."""
_OTHERS = (nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Target(NamedTuple):
    """One layer to convert: its role, its real channels, and the vectors that lie side by side on either axis."""

    name: str
    module: nn.Module
    role: str
    channels: tuple[int, int]
    blocks: tuple[int, int]
    names: tuple[str, ...]
    """All names of the module, the first one included: shared layers have several."""


def survey(
    model: nn.Module, layers: Layers, skip: Sequence[str] | Skip = (), layout: Layout | None = None
) -> tuple[list[Target], dict[str, str]]:
    """List what `zoo.convert` replaces, and what stays real with the reason; nothing is changed.

    Structure alone decides, never the values of weights, so that a converted network can be built again for its weights.
    """
    if any(isinstance(module, Algebra) for module in model.modules()):
        raise InputError("the model is already over an algebra; build it anew to convert it")
    skipped = skip if callable(skip) else _skip_patterns(model, [skip] if isinstance(skip, str) else skip)
    ends, modules = _stem_and_head(model), dict(model.named_modules(remove_duplicate=False))
    users = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    targets: list[Target] = []
    real: dict[str, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, _OTHERS):
            real[name] = f"{type(module).__name__} has no hypercomplex form here"
        elif is_matrix(module):
            names = tuple(other for other, same in modules.items() if same is module)
            found = layout(name, module) if layout is not None else _layout_of_all(names, module, modules)
            role = next((ends[other] for other in names if other in ends), found.role)
            role = role or ("conv" if isinstance(module, nn.Conv1d | nn.Conv2d) else "ffn")
            target = Target(name, module, role, channels(module), found.blocks or (1, 1), names)
            reason = "skipped" if any(skipped(other, module) for other in names) else None
            reason = reason or obstacle(target, layers, found.reason)
            if not reason and any(users[id(p)] > 1 for p in module.parameters(recurse=False)):
                reason = "another module uses the same parameter"
            if reason:
                real[name] = reason
            else:
                targets.append(target)
    if layers.n > 1 and not targets:
        raise InputError(f"no matrix of this {type(model).__name__} can be over an algebra: {_summary(real.values())}")
    return targets, real


def obstacle(target: Target, layers: Layers, unknown: str | None = None) -> str | None:
    """Say why a layer cannot or should not be converted, or None; ``unknown`` is why its layout is not known."""
    module, n, groups = target.module, layers.n, getattr(target.module, "groups", 1)
    if target.role not in layers.roles:
        ends = target.role in ("stem", "head")
        return target.role if ends else f"role {target.role} is outside the scope {layers.scope}"
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    if parametrize.is_parametrized(module) or any(hooks):
        return "has parametrizations or hooks"
    if not _computes_as_torch(module):
        return f"{type(module).__name__} has a forward of its own"
    if isinstance(module, nn.MultiheadAttention) and not module._qkv_same_embed_dim:
        return "queries, keys and values have different sizes"
    if groups > 1 and n > 1:
        is_depthwise = groups == target.channels[0]
        return "depthwise" if is_depthwise else unknown or "groups are runs of real channels, not of whole elements"
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


def _computes_as_torch(module: nn.Module) -> bool:
    """Whether a subclass still computes what torch's own layer does."""
    kind, base = type(module), next((t for t in TORCH_LAYERS if isinstance(module, t)), type(module))
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in ("forward", "_conv_forward"))


def _skip_patterns(model: nn.Module, patterns: Sequence[str]) -> Skip:
    names = [name for name, _ in model.named_modules()]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            raise InputError(f"skip pattern '{pattern}' fits no module of this model")
    return lambda name, _: any(fnmatch(name, pattern) for pattern in patterns)


def _stem_and_head(model: nn.Module) -> dict[str, str]:
    """Return what timm or Hugging Face calls the first layer and the classifier of a model it built."""
    known: Any = getattr(model, "pretrained_cfg", None) or {}
    ends: dict[str, str] = {}
    for key, role in (("first_conv", "stem"), ("classifier", "head")):
        value = known.get(key) or ()
        ends.update(dict.fromkeys((value,) if isinstance(value, str) else value, role))
    if callable(table := getattr(model, "get_output_embeddings", None)):
        colours, output = getattr(getattr(model, "config", None), "num_channels", None), table()
        for name, module in model.named_modules():
            if module is output or (name in _HEADS and is_matrix(module)):
                ends[name] = "head"
            elif isinstance(module, nn.Conv2d) and module.in_channels == colours:
                ends[name] = "stem"
    return ends


def _layout_of_all(names: Sequence[str], module: nn.Module, modules: dict[str, nn.Module]) -> MatrixLayout:
    """Return the layout that a matrix has in all of its places."""
    layouts = {matrix_layout(name, module, modules) for name in names}
    if len(layouts) > 1:
        return MatrixLayout(None, None, f"its places, {' and '.join(names[:2])}, cut it differently")
    return layouts.pop()


def _summary(reasons: Iterable[str], most: int = 3) -> str:
    """Say in one line how often each of the commonest reasons holds."""
    counted = Counter(reasons).most_common()
    said = [f"{reason} ({times})" for reason, times in counted[:most]]
    more = sum(times for _, times in counted[most:])
    return "; ".join(said + [f"other reasons ({more})"] * bool(more)) or "it has none"
