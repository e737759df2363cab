"""Replace the matrices of a network that torch, timm or Hugging Face built by matrices over an algebra."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.conversion.attention_layout import is_conv1d_of_transformers
from zoo.conversion.multihead_attention import MultiheadAttention
from zoo.conversion.targets import Layout, Skip, Target, survey
from zoo.conversion.transfer import Projection, project
from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.weight import Weight


class Conversion(NamedTuple):
    """What `convert` did to a network: names of converted layers, and of matrices that stayed real, each with the reason."""

    converted: tuple[str, ...]
    real: dict[str, str]


def stayed_real(model: nn.Module) -> dict[str, list[str]]:
    """Group the matrices that `convert` left real by the reason: {reason: names}; empty for a model it has not seen."""
    found: dict[str, list[str]] = {}
    conversion = getattr(model, "conversion", None)
    if isinstance(conversion, Conversion):
        for name, reason in conversion.real.items():
            found.setdefault(reason, []).append(name)
    return found


def convert(
    model: nn.Module,
    algebra: str | Algebra | Layers,
    *,
    skip: Sequence[str] | Skip = (),
    weights: str = "fresh",
    scope: str = "all",
    layout: Layout | None = None,
) -> nn.Module:
    r"""Replace every matrix between the stem and the head by one over an algebra, in place, and return the model.

    Linear layers (also Hugging Face's ``Conv1D`` of GPT-2), convolutions and torch's multi-head attention are converted; norms,
    biases, position tables and activations stay. In an attention module (``num_heads``, ``heads``, ``n_head`` or a Hugging Face
    ``config``) every head of q, k and v, and in a gated unit either branch, is made of whole algebra elements; where their
    layout is not known they stay real. Networks that concatenate or split channels elsewhere (DenseNet, Res2Net) or transpose
    tokens and channels (MLP-Mixer) keep working; their components are then slices of whatever axis the matrix reads. A layer
    that is used in several places is replaced in all of them. For a model that is one layer the new layer is returned.

    ``model.conversion`` lists what stays real, and why. Structure alone decides, never the values of weights. A new layer keeps
    device, dtype, bias, and whether its weight and its bias are trained.

    Args:
        model: The network. The stem and head of a timm or Hugging Face model stay real unless the scope names them.
        algebra: A spec such as ``"quaternion"``, an `Algebra`, or a `Layers` factory, whose own scope then counts.
        skip: Shell patterns of module names that stay real, or a function of name and module.
        weights: ``fresh`` draws new ones; ``project`` takes the nearest to the present ones: least squares for a fixed product,
            the nearest sum of Kronecker products for a learned one (Van Loan and Pitsianis 1993); see ``model.projections``.
        scope: Which roles to convert, see `zoo.layers.factory.parse_scope`.
        layout: Returns the `MatrixLayout` of a matrix by name and module; by default it is derived from names and classes.

    Raises:
        InputError: If a name, a scope or ``weights`` is unknown, a skip pattern fits no module, the model is over an algebra
            already, or n > 1 and not one of its matrices can be converted.

    Example:
        >>> from zoo.algebras import reals
        >>> net = convert(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), reals(), skip=["2"])
        >>> net.conversion
        Conversion(converted=('0',), real={'2': 'skipped'})
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"convert takes a torch.nn.Module, not {model!r:.60}; zoo.backbone builds one by its name")
    if weights not in ("fresh", "project"):
        raise InputError(f"unknown weights '{weights}': use fresh or project")
    layers = algebra if isinstance(algebra, Layers) else Layers(algebra, scope)
    targets, real = survey(model, layers, skip, layout)
    made = [_build(target, layers) for target in targets]
    projections: list[Projection] = []
    if weights == "project":
        both = zip(targets, made, strict=True)
        pairs = {target.name: (_real_weight(target.module), _weight(layer)) for target, layer in both}
        projections = project(pairs, layers.algebra)
    for target, layer in zip(targets, made, strict=True):
        if not target.name:
            model = layer
        for name in filter(None, target.names):
            model.set_submodule(name, layer)
    model.conversion = Conversion(tuple(t.name for t in targets), real)  # type: ignore[assignment]
    model.projections = projections  # type: ignore[assignment]
    return guard_pretrained(model, any(is_conv1d_of_transformers(target.module) for target in targets))


PRETRAINED = ("save_pretrained", "from_pretrained", "push_to_hub")
"""Methods of Hugging Face models that read or write weights by the class of the model, which a conversion does not change."""


def guard_pretrained(model: nn.Module, has_conv1d: bool) -> nn.Module:
    """Make the methods `PRETRAINED` of a converted model raise: from_pretrained would build the real network again."""
    for name in PRETRAINED:
        if callable(getattr(model, name, None)):
            setattr(model, name, partial(refuse_pretrained, name, has_conv1d))
    return model


def refuse_pretrained(name: str, has_conv1d: bool, *_: Any, **__: Any) -> None:
    """Raise in place of a method of `PRETRAINED`. A folded ``Conv1D`` is a linear layer, which its class cannot load."""
    folded = "" if has_conv1d else f", or {name} of zoo.fold(model)"
    raise InputError(f"{name} does not support converted models: use zoo.save(model, FOLDER){folded}", code="unsupported")


def _build(target: Target, layers: Layers) -> nn.Module:
    """Build the layer that replaces a real one: same sizes, same arguments, same bias, fresh weights, on the same device."""
    old: Any = target.module
    weight = _real_weight(old)
    options: dict[str, Any] = {"blocks": target.blocks, "role": target.role}
    layer: nn.Module
    with torch.device(weight.device):
        if isinstance(old, nn.MultiheadAttention):
            in_proj = Weight(layers.over(target.role), *target.channels, blocks=target.blocks, init=layers.init)
            layer = MultiheadAttention(old, in_proj.to(weight.device, weight.dtype))
        elif isinstance(old, nn.Conv1d | nn.Conv2d):
            names = ("stride", "padding", "dilation", "groups", "padding_mode")
            options |= {name: getattr(old, name) for name in names} | {"bias": old.bias is not None}
            build = layers.conv1d if isinstance(old, nn.Conv1d) else layers.conv2d
            layer = build(*target.channels, old.kernel_size, **options)
        else:
            layer = layers.linear(*target.channels, old.bias is not None, **options)
    if not isinstance(layer, MultiheadAttention):
        layer = layer.to(weight.device, weight.dtype)
    _keep(old, layer.train(old.training))
    return layer


@torch.no_grad()
def _keep(old: Any, layer: Any) -> None:
    """Copy the bias, and freeze what was frozen; the biases of torch's attention are taken over with the rest of it."""
    is_attention, weight = isinstance(old, nn.MultiheadAttention), _weight(layer)
    trained = (old.in_proj_weight if is_attention else old.weight).requires_grad
    weight.components.requires_grad_(trained)
    if weight.algebra.learned and not weight.algebra.shared:
        weight.algebra.requires_grad_(trained)
    if not is_attention and layer.bias is not None:
        layer.bias.copy_(old.bias)
        layer.bias.requires_grad_(old.bias.requires_grad)


def _weight(layer: Any) -> Weight:
    found: Weight = layer.in_proj if isinstance(layer, MultiheadAttention) else layer.weight_module
    return found


def _real_weight(module: Any) -> Tensor:
    """Return the real matrix of a layer, [out, in, *kernel], without its history."""
    weight: Tensor = module.in_proj_weight if isinstance(module, nn.MultiheadAttention) else module.weight
    return weight.detach().T if is_conv1d_of_transformers(module) else weight.detach()
