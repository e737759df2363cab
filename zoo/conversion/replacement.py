"""Replace the matrices of a network of torch, timm or Hugging Face by matrices over an algebra."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from zoo import registry
from zoo.algebras import Algebra
from zoo.conversion.attention_layout import MatrixLayout, matrix_layout
from zoo.conversion.torch_layers import (
    REPLACEMENTS,
    TRANSPOSED,
    channels,
    default_role,
    is_conv1d_of_transformers,
    is_matrix,
    real_weight,
    recurrent_suffixes,
    torch_class,
)
from zoo.conversion.transfer import project
from zoo.errors import InputError, check_choice, shorten
from zoo.kernels import axis_layout
from zoo.nn import Layers, Linear, MultiheadAttention, batch_matrices
from zoo.nn.conv import computes_as
from zoo.nn.factory import ROLES
from zoo.nn.recurrent import Recurrent
from zoo.nn.weight import Weight

Layout = Callable[[str, nn.Module], MatrixLayout]

# Hugging Face's names of the modules whose last matrix is the head, and of the channels in the configuration of a stem.
_HEADS = ("classifier", "classification_head", "score", "logits_proj", "qa_outputs", "text_projection", "visual_projection")
_CHANNELS = ("num_channels", "in_channels", "in_chans", "num_mel_bins")
_UNSUPPORTED = (nn.Bilinear, nn.RNN, nn.RNNCellBase)


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
        raise InputError("the model already has hypercomplex layers: convert a real one")
    patterns = [skip] if isinstance(skip, str) else skip
    ends, modules = stem_and_head(model), dict(model.named_modules(remove_duplicate=False))
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
        role = next((ends[name] for name in uses if name in ends), matrix.role) or default_role(module)
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
    if not is_conv1d_of_transformers(module) and not computes_as(module, torch_class(module) or type(module)):
        return f"{type(module).__name__} overrides forward"
    if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is None:
        return "queries, keys and values have different sizes"
    if isinstance(module, nn.RNNBase) and module.proj_size:
        return "proj_size is not supported"
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


def stem_and_head(model: nn.Module) -> dict[str, str]:
    """Return the roles of the first layers and classifiers of a timm or Hugging Face model, by name."""
    config: Any = getattr(model, "pretrained_cfg", None) or {}
    ends: dict[str, str] = {}
    for key, role in (("first_conv", "stem"), ("classifier", "head")):
        value = config.get(key) or ()
        ends.update(dict.fromkeys((value,) if isinstance(value, str) else value, role))
    if callable(get_output := getattr(model, "get_output_embeddings", None)):
        output, inputs = get_output(), _input_channels(model)
        for name, module in model.named_modules():
            matrices = [part for part, child in module.named_modules(prefix=name) if is_matrix(child)] if name in _HEADS else []
            if module is output or matrices:
                ends[matrices[-1] if matrices else name] = "head"
            elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and module.in_channels in inputs:
                ends[name] = "stem"
    return ends


def _input_channels(model: nn.Module) -> set[int]:
    """Return the channels of images and spectrograms by the configurations of a Hugging Face model and of its parts."""
    configs = [getattr(module, "config", None) for module in model.modules()]
    return {value for config in configs for key in _CHANNELS if isinstance(value := getattr(config, key, None), int)}


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


class Conversion(NamedTuple):
    """The result of `convert`: names of the converted layers, and of the matrices that stay real with the reasons."""

    converted: tuple[str, ...]
    real: dict[str, str]


def record(model: nn.Module) -> dict[str, str]:
    """Return the converted layers by name, with the vectors side by side on their input and output axis: ``1x4`` for 1 and 4.

    Layers that were replaced since, by a new head for example, are left out. `convert_again` converts a network of the same
    structure in the same way.
    """
    conversion, modules = getattr(model, "conversion", None), dict(model.named_modules(remove_duplicate=False))
    names = conversion.converted if isinstance(conversion, Conversion) else ()
    layers = {name: modules[name] for name in names if name in modules}
    over = {name: layer for name, layer in layers.items() if any(isinstance(module, Weight) for module in layer.modules())}
    return {name: "{}x{}".format(*_blocks_of(layer)) for name, layer in over.items()}


def _blocks_of(layer: Any) -> tuple[int, int]:
    weight = getattr(layer, "in_proj", None) or next(module for module in layer.modules() if isinstance(module, Weight))
    return weight.inp.blocks, weight.out.blocks


def convert_again(model: nn.Module, algebra: str | Algebra, converted: Mapping[str, str]) -> nn.Module:
    """Convert the layers of a `record`, in place, and return the model; its weights are to be loaded."""
    blocks: dict[str, tuple[int, int]] = {}
    for name, text in converted.items():
        if not (match := re.fullmatch(r"(\d{1,6})x(\d{1,6})", str(text))):
            raise InputError(f"layout {shorten(str(text))} of '{name}': must be two numbers such as '1x4'", code="corrupt")
        blocks[name] = int(match[1]), int(match[2])

    def layout(name: str, _: nn.Module) -> MatrixLayout:
        return MatrixLayout(None, blocks[name]) if name in blocks else MatrixLayout(None, None, "was not converted")

    with torch.random.fork_rng(devices=[]):
        return convert(model, algebra, scope="+".join(ROLES), layout=layout)


def stayed_real(model: nn.Module) -> dict[str, list[str]]:
    """Return the names of the matrices that `convert` left real, grouped by the reason; empty for other models."""
    groups: dict[str, list[str]] = {}
    conversion = getattr(model, "conversion", None)
    if isinstance(conversion, Conversion):
        for name, reason in conversion.real.items():
            groups.setdefault(reason, []).append(name)
    return groups


def convert(
    model: nn.Module,
    algebra: str | Algebra | Layers,
    *,
    skip: Sequence[str] = (),
    weights: str = "fresh",
    scope: str = "all",
    layout: Layout | None = None,
) -> nn.Module:
    r"""Replace every matrix between the stem and the head by one over an algebra, in place, and return the model.

    Converts linear layers (also Hugging Face's ``Conv1D`` of GPT-2), convolutions, transposed convolutions, LSTMs, GRUs and
    torch's multi-head attention, but not norms, biases, position tables and activations. Every attention head of q, k and v,
    every gate and every branch of a gated unit consists of whole algebra elements; matrices with an unknown layout stay real.
    In networks that split channels elsewhere (DenseNet, MLP-Mixer), components are slices of the axis that the matrix reads.

    New layers keep the device, dtype, bias, and ``requires_grad`` of weight and bias. A shared layer is replaced everywhere.
    ``model.conversion`` lists the matrices that stay real and the reasons, which depend only on the structure of the model. If
    the model is a single layer, the new layer is returned.

    Args:
        model: The network. The stem and head of a timm or Hugging Face model stay real unless the scope includes them.
        algebra: A spec such as ``"quaternion"``, an `Algebra`, or a `Layers` factory, whose scope overrides ``scope``.
        skip: Shell patterns of the names of modules that stay real.
        weights: ``fresh`` for new weights; ``project`` for those nearest to the current ones (Van Loan and Pitsianis 1993
            for a learned product), with the errors in ``model.projections``.
        scope: Roles to convert, see `zoo.nn.factory.parse_scope`.
        layout: Returns the `MatrixLayout` of a matrix by name and module; by default it is inferred from names and classes.

    Raises:
        InputError: If a name is unknown, the model already has hypercomplex layers, or n > 1 and no matrix can be converted.

    Example:
        >>> from zoo.algebras import reals
        >>> net = convert(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), reals(), skip=["2"])
        >>> net.conversion
        Conversion(converted=('0',), real={'2': 'skipped'})
    """
    check_choice("weights", weights, ("fresh", "project"))
    layers = algebra if isinstance(algebra, Layers) else Layers(algebra, scope)
    targets, real = survey(model, layers, skip, layout)
    replacements = [(target, build_layer(target, layers)) for target in targets]
    replaced = (row for target, layer in replacements for row in replaced_weights(target.name, target.module, layer))
    pairs = {name: (matrix, weight) for name, matrix, weight in replaced}
    projections = project(pairs, layers.algebra) if weights == "project" else []
    for target, layer in replacements:
        model = model if target.name else layer
        for name in filter(None, target.names):
            model.set_submodule(name, layer)
    model.conversion = Conversion(tuple(t.name for t in targets), real)  # type: ignore[assignment]
    model.projections = projections  # type: ignore[assignment]
    integrate(model)
    return batch_matrices(model)


def integrate(model: nn.Module) -> None:
    """Tell the library that a network comes from that it was converted or folded, by its entry in ``zoo.integrations``."""
    packages = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    for entry in registry.entries("zoo.integrations"):
        if entry.name in packages:
            registry.load(entry)(model)


def build_layer(target: Target, layers: Layers) -> nn.Module:
    """Build the replacement of a layer with new weights and the same sizes, arguments, device, biases and requires_grad."""
    old: Any = target.module
    reference = next(old.parameters())
    options: dict[str, Any] = {"algebra": layers.over(target.role), "init": layers.init}
    with torch.device(reference.device), torch.no_grad():
        if isinstance(old, nn.MultiheadAttention):
            return _build_attention(old, target, options)
        layer = _build(old, target, options).to(reference.device, reference.dtype).train(old.training)
        if isinstance(old, nn.RNNBase):
            _copy_biases(old, layer)
        elif layer.bias is not None:
            layer.bias.copy_(old.bias)
            layer.bias.requires_grad_(old.bias.requires_grad)
    for name, _, weight in replaced_weights(target.name, old, layer):
        _set_trained(weight, getattr(old, name.rpartition(".")[2] if isinstance(old, nn.RNNBase) else "weight"))
    return layer  # type: ignore[no-any-return]


_CONV_OPTIONS = ("stride", "padding", "dilation", "groups", "padding_mode")
_RECURRENT_OPTIONS = ("num_layers", "bias", "batch_first", "dropout", "bidirectional")


def _build(old: Any, target: Target, options: dict[str, Any]) -> Any:
    """Build a layer with new weights."""
    kind: Any = REPLACEMENTS[torch_class(old) or type(old)]
    if issubclass(kind, Recurrent):
        return kind(old.input_size, old.hidden_size, **{name: getattr(old, name) for name in _RECURRENT_OPTIONS}, **options)
    options |= {"blocks": target.blocks, "bias": old.bias is not None}
    if kind is Linear:
        layer = Linear(*target.channels, **options)
        if is_conv1d_of_transformers(old):
            layer.real = type(old)
        return layer
    names = (*_CONV_OPTIONS, "output_padding") if isinstance(old, TRANSPOSED) else _CONV_OPTIONS
    return kind(*target.channels, old.kernel_size, **{name: getattr(old, name) for name in names}, **options)


def _build_attention(old: nn.MultiheadAttention, target: Target, options: dict[str, Any]) -> nn.Module:
    """Build multi-head attention with a new input projection; the biases and the output projection are those of ``old``."""
    arguments = old.embed_dim, old.num_heads, old.dropout, old.in_proj_bias is not None
    with torch.device("meta"):
        layer = MultiheadAttention(*arguments, add_zero_attn=old.add_zero_attn, batch_first=old.batch_first, **options)
    like: Any = old.in_proj_weight
    layer.in_proj = Weight(options["algebra"], *target.channels, blocks=target.blocks, init=options["init"]).to(
        like.device, like.dtype
    )
    layer.out_proj, layer.in_proj_bias, layer.bias_k, layer.bias_v = old.out_proj, old.in_proj_bias, old.bias_k, old.bias_v
    _set_trained(layer.in_proj, like)
    return layer.train(old.training)


def _copy_biases(old: Any, layer: Any) -> None:
    """Copy the biases of torch's LSTM or GRU, which adds two to each gate."""
    for cell, suffix in zip(layer.cells, recurrent_suffixes(old), strict=True):
        if cell.bias is not None:
            first, second = (getattr(old, f"bias_{side}_{suffix}") for side in ("ih", "hh"))
            total = first + second
            if cell.hidden_bias is not None:  # the last gate of a GRU
                total[-old.hidden_size :] = first[-old.hidden_size :]
                cell.hidden_bias.copy_(second[-old.hidden_size :])
                cell.hidden_bias.requires_grad_(second.requires_grad)
            cell.bias.copy_(total)
            cell.bias.requires_grad_(first.requires_grad)


def _set_trained(weight: Weight, parameter: Tensor) -> None:
    weight.components.requires_grad_(parameter.requires_grad)
    if weight.algebra.kind == "learned" and not weight.algebra.shared:
        weight.algebra.requires_grad_(parameter.requires_grad)


def replaced_weights(name: str, old: Any, layer: Any) -> Iterator[tuple[str, Tensor, Weight]]:
    """Yield the name, the real matrix [out, in / groups, *kernel] and the new weight of every matrix of a replaced layer."""
    if isinstance(old, nn.RNNBase):
        for cell, suffix in zip(layer.cells, recurrent_suffixes(old), strict=True):
            for side, weights in (("ih", cell.from_input), ("hh", cell.from_hidden)):
                key = f"weight_{side}_{suffix}"
                yield f"{name}.{key}" if name else key, getattr(old, key).detach(), weights[0]
    else:
        weight = layer.in_proj if isinstance(layer, MultiheadAttention) else layer.weight_module
        yield name, real_weight(old), weight
