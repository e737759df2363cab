"""The weights of a trained network over the reals, projected onto the same network over an algebra."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.conversion.projection import arrange, nearest_components, nearest_product, nearest_rule
from zoo.errors import InputError
from zoo.layers.weight import Weight

Pair = tuple[Tensor, Weight]
"""A real matrix [out, in, *kernel], and the weight that is to come nearest to it."""


class Projection(NamedTuple):
    """How near a weight over an algebra comes to the real matrix it was projected from.

    Attributes:
        layer: The name of the layer.
        shape: Of the real matrix.
        error: ``||M - P|| / ||M||`` in the Frobenius norm, with M the real matrix and P what the weight stands for.
        unstructured: The same for the best fit to a matrix of independent normal numbers; a fixed product is assumed.
        drawn: The same for the weights that were drawn before.
    """

    layer: str
    shape: tuple[int, ...]
    error: float
    unstructured: float
    drawn: float


@torch.no_grad()
def project(pairs: Mapping[str, Pair], product: Algebra) -> list[Projection]:
    """Set weights over an algebra to what comes nearest to real matrices; return the errors, by the names of the layers."""
    drawn = {name: _error(*pair) for name, pair in pairs.items()}
    if product.learned and product.shared and pairs:
        arranged = (arrange(matrix, new.out, new.inp) for matrix, new in pairs.values())
        product.rule.copy_(nearest_rule(nearest_product(arranged, product.n), product))
    for matrix, new in pairs.values():
        own = new.algebra
        if product.learned and not product.shared:
            own.rule.copy_(nearest_rule(nearest_product([arrange(matrix, new.out, new.inp)], own.n), own))
        new.elements.copy_(nearest_components(matrix, new.action(), new.out, new.inp))
    return [
        Projection(name, tuple(matrix.shape), _error(matrix, new), _unstructured(matrix, new), drawn[name])
        for name, (matrix, new) in pairs.items()
    ]


def _error(matrix: Tensor, weight: Weight) -> float:
    found = weight.matrix().mT if weight.transposed else weight.matrix()
    size = float(matrix.double().norm())
    return float((matrix.double() - found.double()).norm()) / size if size else 0.0


def _unstructured(matrix: Tensor, weight: Weight) -> float:
    """Return sqrt(1 - d / D): d numbers are fitted to D; those that only meet padding count, so it is a little too low."""
    return math.sqrt(max(0.0, 1 - weight.elements.numel() / matrix.numel()))


@torch.no_grad()
def transfer(source: nn.Module, target: nn.Module, product: Algebra) -> list[Projection]:
    """Give a network over an algebra what the same network over the reals has learned.

    Matrices are projected, all other parameters and buffers copied.

    Args:
        source: The network over the reals.
        target: The network that the same spec builds over ``product``.
        product: The algebra.

    Raises:
        InputError: If the networks differ in more than the algebra; the message names the first layer that has no counterpart.
    """
    matrices, found = dict(real_matrices(source)), source.state_dict()
    pairs: dict[str, Pair] = {}
    own: set[str] = set()
    for name, module in target.named_modules(remove_duplicate=False):
        if isinstance(module, Algebra):
            own |= {f"{name}.{key}" if name else key for key in module.state_dict()}
        if isinstance(module, Weight) and not module.is_matrix:
            layer = name.removesuffix(".weight_module")
            matrix = matrices.get(layer)
            shape = [module.out.channels, module.inp.channels, *module.elements.shape[3:]]
            if matrix is None or list(matrix.shape) != shape:
                raise InputError(f"the real network has no such layer: '{layer}' {shape}{_has(matrix)}")
            if all(module is not other for _, other in pairs.values()):
                pairs[layer] = matrix, module
            own.add(f"{name}.components")
    state = {name: value for name, value in target.state_dict().items() if name not in own}
    for name, value in state.items():
        theirs = found.get(name, found.get(_other_name(name)))
        if theirs is None or theirs.shape != value.shape:
            raise InputError(f"the real network has no such layer: '{name}' {list(value.shape)}{_has(theirs)}")
        value.copy_(theirs)
    return project(pairs, product)


def _has(tensor: Tensor | None) -> str:
    return "" if tensor is None else f"; there it is {list(tensor.shape)}"


def real_matrices(net: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the matrices of a network over the reals, [out, in, *kernel], by the names of their layers."""
    for name, module in net.named_modules(remove_duplicate=False):
        if isinstance(module, Weight):
            matrix = module().detach()
            yield name.removesuffix(".weight_module"), matrix.mT if module.transposed else matrix
        elif isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            yield f"{name}.in_proj", module.in_proj_weight.detach()
        elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            yield name, module.weight.detach()
        elif isinstance(module, nn.Embedding):
            yield name, module.weight.detach().mT


def _other_name(name: str) -> str:
    """Return the name of a matrix in a layer of torch for that in a layer of ours, and the other way round."""
    ours = ".weight_module.components"
    return f"{name.removesuffix(ours)}.weight" if name.endswith(ours) else f"{name.removesuffix('.weight')}{ours}"


def summary(rows: Sequence[Projection]) -> dict[str, Any]:
    """Return the mean error, the worst one and its layer, and the mean for matrices without structure; empty without rows."""
    if not rows:
        return {}
    worst = max(rows, key=lambda row: row.error)
    means = {key: sum(getattr(row, key) for row in rows) / len(rows) for key in ("error", "unstructured")}
    return {"mean": means["error"], "worst": worst.error, "worst_layer": worst.layer, "unstructured": means["unstructured"]}
