"""Turn a network that torch or timm built into the same network over any algebra."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.conversion.obstacles import Target
from zoo.conversion.projection import arrange, nearest_components, nearest_rule
from zoo.conversion.targets import Skip, survey
from zoo.errors import InputError
from zoo.layers import Conv1d, Conv2d, Layers, Linear

Layer = Linear | Conv1d | Conv2d


class Conversion(NamedTuple):
    """What `convert` did to a network; kept as ``model.conversion``."""

    converted: tuple[str, ...]
    """Names of the layers that are hypercomplex now."""
    real: dict[str, str]
    """Names of the matrices that stayed real, each with the reason."""


def stayed_real(model: nn.Module) -> dict[str, list[str]]:
    """Group the matrices that `convert` left real by the reason: {reason: names}; empty for a model it has not seen."""
    found: dict[str, list[str]] = {}
    conversion = getattr(model, "conversion", None)
    if isinstance(conversion, Conversion):
        for name, reason in conversion.real.items():
            found.setdefault(reason, []).append(name)
    return found


class MultiheadAttention(nn.MultiheadAttention):
    """Torch's attention with an input projection over an algebra; `convert` makes it out of a built one."""

    in_proj: Linear

    @property
    def in_proj_weight(self) -> Tensor:  # type: ignore[override]
        """The real matrix that torch's forward reads, [3 * embed_dim, embed_dim]."""
        return self.in_proj.weight


def convert(
    model: nn.Module,
    algebra: str | Algebra | Layers,
    *,
    skip: Sequence[str] | Skip = (),
    weights: str = "fresh",
    scope: str = "all",
) -> nn.Module:
    r"""Replace every matrix between the stem and the head by one over an algebra, in place, and return the model.

    Linear layers, convolutions and torch's multi-head attention are converted; norms, biases, position tables and activations
    stay. In an attention module (``num_heads``, ``heads`` or ``n_head``) every head of q, k and v, and in a gated unit either
    branch, is made of whole algebra elements; where their layout is not known they stay real. Networks that concatenate or
    split channels elsewhere (DenseNet, Res2Net) or transpose tokens and channels (MLP-Mixer) keep working; their components
    are then slices of whatever axis the matrix reads. A layer that is used in several places is replaced in all of them.

    What stays real is listed with its reason in ``model.conversion``: the stem and the head of a timm model unless the scope
    names them (of any other model only what ``skip`` names), depthwise and grouped convolutions whose groups hold no whole
    elements, layers outside the scope, matrices of attention modules and gated units whose layout is not known, subclasses
    with a forward of their own, layers with parametrizations or forward hooks or with a parameter that another module uses
    too, and matrices so small that padding would cost more weights than it saves.

    A new layer keeps the device, the dtype, the bias, and whether its weight and its bias are trained.

    Args:
        model: The network.
        algebra: A spec such as ``"quaternion"``, an `Algebra`, or a `Layers` factory, whose own scope then counts.
        skip: Shell patterns of module names that stay real, or a function of name and module.
        weights: ``fresh`` draws new ones; ``project`` takes the nearest to the present ones: least squares for a fixed rule,
            and for a learned rule the nearest sum of Kronecker products (Van Loan and Pitsianis 1993).
        scope: Which roles to convert, see `zoo.layers.factory.parse_scope`.

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
    targets, real = survey(model, layers, skip, project=weights == "project")
    made = [make(target, layers) for target in targets]
    if weights == "project":
        project([(target.module, layer) for target, layer in zip(targets, made, strict=True)], layers.algebra)
    for target, layer in zip(targets, made, strict=True):
        install(model, target, layer)
    model.conversion = Conversion(tuple(t.name for t in targets), real)  # type: ignore[assignment]
    return model


def make(target: Target, layers: Layers) -> Layer:
    """Build the layer that replaces a real one: same sizes, same arguments, same bias, fresh weights, on the same device."""
    old: Any = target.module
    weight = real_weight(old)
    options: dict[str, Any] = {"blocks": target.blocks, "role": target.role}
    layer: Layer
    with torch.device(weight.device):
        if isinstance(old, nn.Conv1d | nn.Conv2d):
            names = ("stride", "padding", "dilation", "groups", "padding_mode")
            options |= {name: getattr(old, name) for name in names} | {"bias": old.bias is not None}
            build = layers.conv1d if isinstance(old, nn.Conv1d) else layers.conv2d
            layer = build(*target.channels, old.kernel_size, **options)
        else:
            bias = isinstance(old, nn.Linear) and old.bias is not None
            layer = layers.linear(*target.channels, bias, **options)
    keep(old, layer.to(weight.device, weight.dtype).train(old.training))
    return layer


@torch.no_grad()
def keep(old: Any, layer: Layer) -> None:
    """Copy the bias, and freeze what was frozen; the bias of torch's attention stays where it is."""
    attention = isinstance(old, nn.MultiheadAttention)
    trained = (old.in_proj_weight if attention else old.weight).requires_grad
    layer.components.requires_grad_(trained)
    if layer.algebra.learned and not layer.algebra.shared:
        layer.algebra.requires_grad_(trained)
    if layer.bias is not None:
        layer.bias.copy_(old.bias)
        layer.bias.requires_grad_(old.bias.requires_grad)


def real_weight(module: nn.Module) -> Tensor:
    """The real matrix of a layer that torch built, without its history."""
    weight = module.in_proj_weight if isinstance(module, nn.MultiheadAttention) else module.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


@torch.no_grad()
def project(pairs: list[tuple[nn.Module, Layer]], rule: Algebra) -> None:
    """Set layers over an algebra to what comes nearest to the real ones they replace."""
    if rule.learned and rule.shared and pairs:
        together = nearest_rule((arrange(real_weight(old), new.out, new.inp) for old, new in pairs), rule.n)
        rule.structure.copy_(together)
    for old, new in pairs:
        weight, product = real_weight(old), new.algebra
        if rule.learned and not rule.shared:
            product.structure.copy_(nearest_rule([arrange(weight, new.out, new.inp)], rule.n))
        new.weight_module.elements.copy_(nearest_components(weight, product.action, new.out, new.inp))


def install(model: nn.Module, target: Target, layer: Layer) -> None:
    """Put the new layer in every place of the old one."""
    if isinstance(target.module, nn.MultiheadAttention):
        del target.module.in_proj_weight
        target.module.in_proj = layer
        target.module.__class__ = MultiheadAttention
    elif target.name:
        for place in target.places:
            model.set_submodule(place, layer)
    else:
        raise InputError("the model is a single layer: build it with zoo.layers instead of converting it")
