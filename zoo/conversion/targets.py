"""Find the layers of a network to convert, and the reasons why other matrices stay real."""

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
from zoo.layers.conv import computes_as

Layout = Callable[[str, nn.Module], MatrixLayout]

_CLASSIFIERS = ("classifier", "score", "qa_outputs")
"""Names of the last layer of Hugging Face's classifiers."""
_UNSUPPORTED = (nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class Target(NamedTuple):
    """A layer to convert: its names (one per use), role, real channels, and vectors side by side on each axis."""

    names: tuple[str, ...]
    module: nn.Module
    role: str
    channels: tuple[int, int]
    blocks: tuple[int, int]

    @property
    def name(self) -> str:
        """The first name."""
        return self.names[0]


def survey(
    model: nn.Module, layers: Layers, skip: Sequence[str] = (), layout: Layout | None = None
) -> tuple[list[Target], dict[str, str]]:
    """Return the layers that `zoo.convert` replaces, and the reason for each matrix that stays real.

    The result depends only on the structure of the model, so that a converted network can be rebuilt to load its weights.
    """
    if any(isinstance(module, Algebra) for module in model.modules()):
        raise InputError("the model is already over an algebra: convert a real one")
    patterns = [skip] if isinstance(skip, str) else skip
    ends, modules = _stem_and_head(model), dict(model.named_modules(remove_duplicate=False))
    if unused := [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in modules)]:
        raise InputError(f"skip pattern '{unused[0]}' matches no module of this model", code="unknown")
    users = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    names: dict[nn.Module, tuple[str, ...]] = {}
    for name, module in modules.items():
        names[module] = (*names.get(module, ()), name)
    targets: list[Target] = []
    real: dict[str, str] = {}
    for module, uses in names.items():
        if isinstance(module, _UNSUPPORTED):
            real[uses[0]] = f"{type(module).__name__} is not supported"
        if not is_matrix(module):
            continue
        matrix = layout(uses[0], module) if layout is not None else _common_layout(uses, module, modules)
        kind = "conv" if isinstance(module, nn.Conv1d | nn.Conv2d) else "ffn"
        role = next((ends[name] for name in uses if name in ends), matrix.role) or kind
        target = Target(uses, module, role, channels(module), matrix.blocks or (1, 1))
        is_skipped = any(fnmatch(name, pattern) for name in uses for pattern in patterns)
        reason = "skipped" if is_skipped else obstacle(target, layers, matrix.reason)
        if not reason and any(users[id(p)] > 1 for p in module.parameters(recurse=False)):
            reason = "another module uses the same parameter"
        if reason:
            real[target.name] = reason
        else:
            targets.append(target)
    if layers.n > 1 and not targets:
        raise InputError(f"no matrix of this {type(model).__name__} can be converted: {_summary(real.values())}")
    return targets, real


def obstacle(target: Target, layers: Layers, unknown: str | None = None) -> str | None:
    """Return the reason why a layer stays real, or None; ``unknown`` is the reason of an unknown layout."""
    module, n, groups = target.module, layers.n, getattr(target.module, "groups", 1)
    if target.role not in layers.roles:
        is_end = target.role in ("stem", "head")
        return target.role if is_end else f"role {target.role} is outside the scope {layers.scope}"
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    if parametrize.is_parametrized(module) or any(hooks):
        return "has parametrizations or hooks"
    if not computes_as(module, next((kind for kind in TORCH_LAYERS if isinstance(module, kind)), type(module))):
        return f"{type(module).__name__} overrides forward"
    if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is None:
        return "queries, keys and values have different sizes"
    if groups > 1 and n > 1:
        is_depthwise = groups == target.channels[0]
        return "depthwise" if is_depthwise else unknown or "groups split the algebra elements"
    if unknown:
        return unknown
    try:
        inp, out = (axis_layout(size, n, blocks) for size, blocks in zip(target.channels, target.blocks, strict=True))
    except InputError as error:
        return str(error)
    if n * out.elements * inp.elements > out.channels * inp.channels:
        return f"padding {inp.channels} -> {out.channels} channels to n = {n} costs more weights than it saves"
    return None


def _stem_and_head(model: nn.Module) -> dict[str, str]:
    """Return the roles of the first layers and classifiers of a timm or Hugging Face model, by name."""
    config: Any = getattr(model, "pretrained_cfg", None) or {}
    ends: dict[str, str] = {}
    for key, role in (("first_conv", "stem"), ("classifier", "head")):
        value = config.get(key) or ()
        ends.update(dict.fromkeys((value,) if isinstance(value, str) else value, role))
    if callable(get_output := getattr(model, "get_output_embeddings", None)):
        in_channels, output = getattr(getattr(model, "config", None), "num_channels", None), get_output()
        for name, module in model.named_modules():
            if module is output or (name in _CLASSIFIERS and is_matrix(module)):
                ends[name] = "head"
            elif isinstance(module, nn.Conv2d) and module.in_channels == in_channels:
                ends[name] = "stem"
    return ends


def _common_layout(names: Sequence[str], module: nn.Module, modules: dict[str, nn.Module]) -> MatrixLayout:
    """Return the layout of a matrix if it is the same for all its uses, else an unknown one."""
    layouts = {matrix_layout(name, module, modules) for name in names}
    return layouts.pop() if len(layouts) == 1 else MatrixLayout(None, None, f"{' and '.join(names[:2])} split it differently")


def _summary(reasons: Iterable[str], count: int = 3) -> str:
    """Return the most common reasons and their counts in one line."""
    counts = Counter(reasons).most_common()
    others = sum(number for _, number in counts[count:])
    texts = [f"{reason} ({number})" for reason, number in counts[:count]] + [f"other reasons ({others})"] * bool(others)
    return "; ".join(texts) or "it has no matrix"
