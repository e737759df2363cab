"""Weights from other networks: project those of a real network onto an algebra, and the results of importers."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra, FactoredAlgebra
from zoo.conversion.torch_layers import CONVOLUTIONS, real_weight
from zoo.errors import InputError
from zoo.kernels import AxisLayout
from zoo.nn.weight import Weight

_COMPONENTS = ".weight_module.components"


class Projection(NamedTuple):
    """The relative error of the projection of a real matrix.

    Attributes:
        layer: The name of the layer.
        shape: Shape of the real matrix.
        error: ``||M - P|| / ||M||`` in the Frobenius norm, with M the real matrix and P its projection.
        unstructured: The expected error for a matrix of independent normal numbers and a fixed product.
    """

    layer: str
    shape: tuple[int, ...]
    error: float
    unstructured: float


@torch.no_grad()
def project(pairs: Mapping[str, tuple[Tensor, Weight]], product: Algebra) -> list[Projection]:
    """Set weights over an algebra to those nearest to real matrices [out, in, *kernel], and return the errors by layer."""
    if product.kind == "learned" and product.shared and pairs:
        rows = (block_rows(matrix, weight.out, weight.inp) for matrix, weight in pairs.values())
        product.stored.copy_(nearest_rule(nearest_product(rows, product.n), product))
    for matrix, weight in pairs.values():
        algebra = weight.algebra
        if product.kind == "learned" and not product.shared:
            rule = nearest_product([block_rows(matrix, weight.out, weight.inp)], algebra.n)
            algebra.stored.copy_(nearest_rule(rule, algebra))
        weight.elements.copy_(nearest_components(matrix, weight.action(), weight.out, weight.inp))
    projections = []
    for name, (matrix, weight) in pairs.items():
        projected = weight().mT if weight.transposed else weight()
        size = float(matrix.double().norm())
        error = float((matrix.double() - projected.double()).norm()) / size if size else 0.0
        # The expected error of fitting d numbers to D is sqrt(1 - d / D); it is slightly too low because d includes padding.
        unstructured = math.sqrt(max(0.0, 1 - weight.elements.numel() / matrix.numel()))
        projections.append(Projection(name, tuple(matrix.shape), error, unstructured))
    return projections


@torch.no_grad()
def transfer(source: nn.Module, target: nn.Module, product: Algebra) -> list[Projection]:
    """Project the matrices of a real network onto the same network over an algebra, and copy all other tensors.

    Raises:
        InputError: If the networks differ in more than the algebra; the message names the first layer that differs.
    """
    matrices, state = dict(real_matrices(source)), source.state_dict()
    pairs: dict[str, tuple[Tensor, Weight]] = {}
    projected: set[str] = set()
    for name, module in target.named_modules(remove_duplicate=False):
        if isinstance(module, Algebra):
            projected |= {f"{name}.{key}" if name else key for key in module.state_dict()}
        if isinstance(module, Weight) and not module.is_matrix:
            layer = name.removesuffix(".weight_module")
            matrix = _of_shape(layer, matrices, [module.out.channels, module.inp.channels, *module.elements.shape[3:]])
            if all(module is not weight for _, weight in pairs.values()):
                pairs[layer] = matrix, module
            projected.add(f"{name}.components")
    for name, value in target.state_dict().items():
        if name not in projected:
            # A matrix, such as that of the head, may be a torch layer in one network and a zoo layer in the other.
            is_zoo = name.endswith(_COMPONENTS)
            other = f"{name.removesuffix(_COMPONENTS)}.weight" if is_zoo else name.removesuffix(".weight") + _COMPONENTS
            value.copy_(_of_shape(name if name in state else other, state, list(value.shape)))
    return project(pairs, product)


def _of_shape(name: str, tensors: Mapping[str, Tensor], shape: list[int]) -> Tensor:
    """Return a tensor of the real network; raise `InputError` if it is missing or has another shape."""
    if name not in tensors or list(tensors[name].shape) != shape:
        got = f"has shape {list(tensors[name].shape)}" if name in tensors else "is missing"
        raise InputError(f"layer '{name}' {got} in the real network, expected shape {shape}", code="mismatch")
    return tensors[name]


def real_matrices(net: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the matrices of a real network, [out, in, *kernel], by the names of their layers."""
    for name, module in net.named_modules(remove_duplicate=False):
        if isinstance(module, Weight):
            matrix = module().detach()
            yield name.removesuffix(".weight_module"), matrix.mT if module.transposed else matrix
        elif isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            yield f"{name}.in_proj", real_weight(module)
        elif isinstance(module, (nn.Linear, *CONVOLUTIONS)):
            yield name, real_weight(module)
        elif isinstance(module, nn.Embedding):
            yield name, module.weight.detach().mT


def summary(rows: Sequence[Projection]) -> dict[str, Any]:
    """Return the mean error, the worst one with its layer, and the mean for matrices without structure; empty without rows."""
    if not rows:
        return {}
    worst = max(rows, key=lambda row: row.error)
    means = {key: sum(getattr(row, key) for row in rows) / len(rows) for key in ("error", "unstructured")}
    return {"mean": means["error"], "worst": worst.error, "worst_layer": worst.layer, "unstructured": means["unstructured"]}


def block_rows(matrix: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Rearrange a real matrix so that its algebra blocks become rows (Van Loan and Pitsianis 1993).

    [out.channels, in.channels, *kernel] becomes [n * n, out.blocks, out.width, in.blocks, in.width, area]: row k n + j is block
    row k, block column j; padding is zero.
    """
    m = matrix.reshape(out.blocks, out.size, inp.blocks, inp.size, -1)
    m = F.pad(m, (0, 0, 0, inp.n * inp.width - inp.size, 0, 0, 0, out.n * out.width - out.size))
    m = m.reshape(out.blocks, out.n, out.width, inp.blocks, inp.n, inp.width, -1)
    return m.permute(1, 4, 0, 2, 3, 5, 6).flatten(0, 1)


def nearest_components(matrix: Tensor, structure: Tensor, out: AxisLayout, inp: AxisLayout) -> Tensor:
    r"""Return the w that minimizes || matrix - real_matrix(structure, w) ||_F, [m, out.elements, in.elements, *kernel].

    Each position (o, c) of the blocks is a separate least-squares problem: M_kj = sum_i A[i, j, k] w_i over the pairs (k, j)
    that are not padding. Weights that only multiply padding are zero.
    """
    n, m = out.n, structure.shape[0]
    rows = block_rows(matrix.double(), out, inp)
    blocks = rows.shape[1], rows.shape[3], rows.shape[5]
    rows = rows.permute(0, 2, 4, 1, 3, 5).flatten(3)
    system = structure.detach().to(rows).permute(2, 1, 0).reshape(n * n, m)
    w = rows.new_zeros(m, *rows.shape[1:])
    for present_k, o in _patterns(out):
        for present_j, c in _patterns(inp):
            pairs = (present_k[:, None] & present_j[None, :]).flatten()
            w[:, o[:, None], c] = torch.einsum("ip,pocr->iocr", torch.linalg.pinv(system[pairs]), rows[pairs][:, o][:, :, c])
    w = w.reshape(*w.shape[:3], *blocks).permute(0, 3, 1, 4, 2, 5)
    return w.reshape(m, out.elements, inp.elements, *matrix.shape[2:]).to(matrix.dtype)


def _patterns(axis: AxisLayout) -> list[tuple[Tensor, Tensor]]:
    """Group the elements of an axis by which of their n components are not padding: pairs of a mask [n] and indices."""
    present = torch.arange(axis.n * axis.width).reshape(axis.n, axis.width) < axis.size
    masks, which = present.unique(dim=1, return_inverse=True)
    return [(mask, (which == i).nonzero().flatten()) for i, mask in enumerate(masks.T)]


def nearest_product(matrices: Iterable[Tensor], n: int) -> Tensor:
    r"""Return the structure tensor whose Kronecker sums are nearest to all matrices, given by their `block_rows`, [n, n, n].

    A sum of n Kronecker products has rank n in `block_rows`, so the best product is spanned by the n leading left singular
    vectors (Van Loan and Pitsianis 1993), computed from the [n^2, n^2] Gram matrix and scaled to the energy n^2 of a signed
    table.
    """
    gram = torch.zeros(n * n, n * n, dtype=torch.float64)
    for rows in matrices:
        flat = rows.double().flatten(1)
        gram = gram.to(flat.device) + flat @ flat.T
    leading: Tensor = torch.linalg.eigh(gram).eigenvectors[:, -n:]
    return leading.T.reshape(n, n, n).transpose(1, 2) * math.sqrt(n)


def nearest_rule(table: Tensor, like: Algebra, sweeps: int = 100) -> Tensor:
    """Return the parameters of an algebra's rule, a table or factors, whose structure tensor is nearest to ``table``.

    Factors are fitted by alternating least squares from the current ones (Carroll and Chang 1970, Harshman 1970).
    """
    if not isinstance(like, FactoredAlgebra):
        return table
    factors = [factor.detach().to(table) for factor in like.factors]
    for _ in range(sweeps):
        for side in range(3):
            u, v = (factors[i] for i in range(3) if i != side)
            pairs = torch.einsum("ri,rj->rij", u, v).flatten(1)
            factors[side] = torch.linalg.pinv(pairs.T) @ table.movedim(side, -1).flatten(0, 1)
    # The scale of a single factor is arbitrary: give all three the same length.
    fitted = torch.stack(factors)
    lengths = fitted.norm(dim=-1, keepdim=True)
    balanced: Tensor = fitted * (lengths.prod(0).pow(1 / 3) / lengths.clamp_min(1e-30))
    return balanced


class ImportedNetwork(NamedTuple):
    """A real network: ``zoo.backbone(backbone, "real", **sizes)`` can load ``state``.

    Attributes:
        backbone: Spec of the backbone.
        sizes: Keyword arguments of `zoo.backbone`, such as ``vocab_size`` and ``max_length``.
        state: The state dict.
        tokenizer: The JSON of its tokenizer with the token ids of the zoo, or None.
    """

    backbone: str
    sizes: dict[str, Any]
    state: dict[str, Tensor]
    tokenizer: str | None = None


class ImportedLayers(NamedTuple):
    """A state dict in which layers of the zoo replace those of another library.

    Attributes:
        state: The state dict.
        layers: For each replaced layer its name, the shape of its real matrix, and the number of its components.
        kept: Names of the unchanged tensors.
    """

    state: dict[str, Tensor]
    layers: list[dict[str, Any]]
    kept: list[str]
