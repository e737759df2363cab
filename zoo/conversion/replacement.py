"""Replace the matrices of a network of torch, timm or Hugging Face by matrices over an algebra."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.conversion.attention_layout import is_conv1d_of_transformers
from zoo.conversion.targets import Layout, Target, survey
from zoo.conversion.transfer import project
from zoo.errors import InputError, check_choice
from zoo.layers import Layers
from zoo.layers.computed_weight import ComputedWeight
from zoo.layers.weight import Weight

PRETRAINED = ("save_pretrained", "from_pretrained", "push_to_hub")
"""Methods of Hugging Face models that do not support conversion, because they rebuild a model from its class."""


class Conversion(NamedTuple):
    """The result of `convert`: names of the converted layers, and of the matrices that stay real with the reasons."""

    converted: tuple[str, ...]
    real: dict[str, str]


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with an input projection over an algebra, built by `zoo.convert`.

    Arguments and results are those of torch's module.
    """

    def __init__(self, old: nn.MultiheadAttention, in_proj: Weight) -> None:
        options: dict[str, Any] = {"bias": old.in_proj_bias is not None, "dropout": old.dropout, "batch_first": old.batch_first}
        super().__init__(old.embed_dim, old.num_heads, add_zero_attn=old.add_zero_attn, device="meta", **options)
        del self.in_proj_weight
        self.in_proj, self.out_proj = in_proj, old.out_proj
        self.in_proj_bias, self.bias_k, self.bias_v = old.in_proj_bias, old.bias_k, old.bias_v
        self.train(old.training)

    @property
    def in_proj_weight(self) -> Tensor:  # type: ignore[override]
        """The real matrix, [3 * embed_dim, embed_dim], which torch's Transformer layers read."""
        weight: Tensor = self.in_proj()
        return weight

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, with the arguments and results of torch's module."""
        options: dict[str, Any] = {"key_padding_mask": key_padding_mask, "need_weights": need_weights, "attn_mask": attn_mask}
        options |= {"average_attn_weights": average_attn_weights, "is_causal": is_causal}
        if self.in_proj.is_matrix:
            return super().forward(query, key, value, **options)
        is_transposed = self.batch_first and query.dim() == 3
        # Keep the identity of equal arguments, so that torch projects them once.
        transposed = {id(t): t.transpose(0, 1) if is_transposed else t for t in (query, key, value)}
        inputs: Any = [transposed[id(t)] for t in (query, key, value)]
        last: Any = self.out_proj
        matrix = last.weight_module() if isinstance(last, ComputedWeight) else last.weight
        parts: Any = (self.in_proj(), self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout)
        attend: Any = F.multi_head_attention_forward
        y, weights = attend(
            *inputs, self.embed_dim, self.num_heads, *parts, matrix, last.bias, training=self.training, **options
        )
        return (y.transpose(0, 1) if is_transposed else y), weights


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

    Converts linear layers (also Hugging Face's ``Conv1D`` of GPT-2), convolutions and torch's multi-head attention, but not
    norms, biases, position tables and activations. Every attention head of q, k and v, and every branch of a gated unit,
    consists of whole algebra elements; matrices with an unknown layout stay real. In networks that split channels elsewhere
    (DenseNet, MLP-Mixer), components are slices of the axis that the matrix reads.

    New layers keep the device, dtype, bias, and ``requires_grad`` of weight and bias. A shared layer is replaced everywhere.
    ``model.conversion`` lists the matrices that stay real and the reasons, which depend only on the structure of the model. If
    the model is a single layer, the new layer is returned.

    Args:
        model: The network. The stem and head of a timm or Hugging Face model stay real unless the scope includes them.
        algebra: A spec such as ``"quaternion"``, an `Algebra`, or a `Layers` factory, whose scope overrides ``scope``.
        skip: Shell patterns of the names of modules that stay real.
        weights: ``fresh`` for new weights; ``project`` for those nearest to the current ones (Van Loan and Pitsianis 1993
            for a learned product), with the errors in ``model.projections``.
        scope: Roles to convert, see `zoo.layers.factory.parse_scope`.
        layout: Returns the `MatrixLayout` of a matrix by name and module; by default it is inferred from names and classes.

    Raises:
        InputError: If a name is unknown, the model is already over an algebra, or n > 1 and no matrix can be converted.

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
    pairs = {target.name: (_real_weight(target.module), _weight(layer)) for target, layer in replacements}
    projections = project(pairs, layers.algebra) if weights == "project" else []
    for target, layer in replacements:
        model = model if target.name else layer
        for name in filter(None, target.names):
            model.set_submodule(name, layer)
    model.conversion = Conversion(tuple(t.name for t in targets), real)  # type: ignore[assignment]
    model.projections = projections  # type: ignore[assignment]
    has_conv1d = any(is_conv1d_of_transformers(target.module) for target in targets)
    for method in PRETRAINED:
        if callable(getattr(model, method, None)):
            setattr(model, method, partial(refuse_pretrained, method, has_conv1d))
    return model


def refuse_pretrained(method: str, has_conv1d: bool, *_: Any, **__: Any) -> None:
    """Raise `InputError` instead of a method of `PRETRAINED`."""
    folded = "" if has_conv1d else f", or {method} of zoo.fold(model)"  # GPT-2 cannot load a linear layer as Conv1D
    raise InputError(f"{method} does not support converted models: use zoo.save(model, FOLDER){folded}", code="unsupported")


@torch.no_grad()
def build_layer(target: Target, layers: Layers) -> nn.Module:
    """Build the replacement of a layer with new weights and the same sizes, arguments, device, bias and requires_grad."""
    old: Any = target.module
    matrix = _real_weight(old)
    options: dict[str, Any] = {"blocks": target.blocks, "role": target.role}
    layer: Any
    with torch.device(matrix.device):
        if isinstance(old, nn.MultiheadAttention):
            in_proj = Weight(layers.over(target.role), *target.channels, blocks=target.blocks, init=layers.init)
            layer = MultiheadAttention(old, in_proj.to(matrix.device, matrix.dtype))
        elif isinstance(old, nn.Conv1d | nn.Conv2d):
            names = ("stride", "padding", "dilation", "groups", "padding_mode")
            options |= {name: getattr(old, name) for name in names} | {"bias": old.bias is not None}
            build = layers.conv1d if isinstance(old, nn.Conv1d) else layers.conv2d
            layer = build(*target.channels, old.kernel_size, **options)
        else:
            layer = layers.linear(*target.channels, old.bias is not None, **options)
    if not isinstance(layer, MultiheadAttention):  # it reuses the biases and the output projection
        layer = layer.to(matrix.device, matrix.dtype).train(old.training)
        if layer.bias is not None:
            layer.bias.copy_(old.bias)
            layer.bias.requires_grad_(old.bias.requires_grad)
    weight, is_trained = _weight(layer), _parameter(old).requires_grad
    weight.components.requires_grad_(is_trained)
    if weight.algebra.learned and not weight.algebra.shared:
        weight.algebra.requires_grad_(is_trained)
    return layer  # type: ignore[no-any-return]


def _weight(layer: Any) -> Weight:
    weight: Weight = layer.in_proj if isinstance(layer, MultiheadAttention) else layer.weight_module
    return weight


def _parameter(module: Any) -> Tensor:
    weight: Tensor = module.in_proj_weight if isinstance(module, nn.MultiheadAttention) else module.weight
    return weight


def _real_weight(module: Any) -> Tensor:
    """Return the real matrix of a layer, [out, in, *kernel], detached."""
    weight = _parameter(module).detach()
    return weight.T if is_conv1d_of_transformers(module) else weight
