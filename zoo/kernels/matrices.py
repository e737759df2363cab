"""The operator that assembles the real matrices of several weights at once, also in compiled graphs.

Gradients are those of `real_matrix`, second derivatives and transformations of `torch.func` are computed by it. The operator
keeps what its backward pass needs as attributes of the context: a checkpoint counts saved tensors, and finds equally many
whether a layer is recomputed with all matrices of its network or alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from zoo.kernels.assembly import (
    action_of,
    assemble,
    differentiable_gradients,
    gradients,
    is_channels_last,
    real_matrix,
)
from zoo.kernels.base import AxisLayout, Part, kernels

_registry: Any = torch.library
_LIBRARY = _registry.Library("zoo", "FRAGMENT")
_PARTS = "Tensor[] components, Tensor[] tables, str[] literals, int[] layouts"
_LIBRARY.define(f"matrices({_PARTS}, ScalarType dtype) -> Tensor[]", tags=torch.Tag.pt2_compliant_tag)
_LIBRARY.define(f"matrices_backward(Tensor[] grads, {_PARTS}) -> Tensor[]", tags=torch.Tag.pt2_compliant_tag)


def matrices(parts: Sequence[Part], dtype: torch.dtype) -> list[Tensor]:
    """Return the real matrices of weights in a dtype, [out, in, *kernel] each, with gradients."""
    return torch.ops.zoo.matrices(*_lists(parts), dtype)  # type: ignore[no-any-return]


def assembled(part: Part, dtype: torch.dtype) -> Tensor:
    """Return the real matrix of one weight as `matrices`; on a CPU without the overhead of the operator."""
    if is_compiling() or part.components.device.type != "cpu":
        return matrices([part], dtype)[0]
    components, table, *product = part
    made: Tensor = _Matrix.apply(components, table, product, dtype)
    return made


class _Matrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, w: Tensor, table: Tensor | None, product: list[Any], dtype: torch.dtype) -> Tensor:
        ctx.part = part = Part(w, table, *product)
        ctx.versions = _versions([w], [] if table is None else [table])
        return assemble(part, dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the components and of the table."""
        part: Part = ctx.part
        _check(ctx.versions, [part.components], [] if part.table is None else [part.table])
        if torch.is_grad_enabled():
            (gw,), g_tables = _gradients([part], [g])
            return gw, g_tables[0] if g_tables else None, None, None
        return *gradients(part, g, ctx.needs_input_grad[1]), None, None


def _versions(components: Sequence[Tensor], tables: Sequence[Tensor]) -> list[int]:
    """Return what must not change before the backward pass; gradients of fixed products do not depend on the components."""
    return [tensor._version for tensor in (*components, *tables)] if tables else []


def _check(versions: list[int], components: Sequence[Tensor], tables: Sequence[Tensor]) -> None:
    if versions != _versions(components, tables):
        raise RuntimeError("the components or the product of a weight were modified in place before the backward pass")


def _lists(parts: Sequence[Part]) -> tuple[list[Tensor], list[Tensor], list[str], list[int]]:
    """Return the arguments of the operators."""
    tables = [part.table for part in parts if part.table is not None]
    layouts = [size for part in parts for layout in (part.out, part.inp) for size in layout]
    return [part.components for part in parts], tables, [part.literal for part in parts], layouts


def _parts(
    components: Sequence[Tensor], tables: Sequence[Tensor], literals: Sequence[str], layouts: Sequence[int]
) -> list[Part]:
    learned, sizes = iter(tables), iter(layouts)
    triples = [AxisLayout(*triple) for triple in zip(sizes, sizes, sizes, strict=True)]
    rows = zip(components, literals, triples[::2], triples[1::2], strict=True)
    return [Part(w, None if text else next(learned), text, out, inp) for w, text, out, inp in rows]


def _matrices(*inputs: Any) -> list[Tensor]:
    *lists, dtype = inputs
    parts = _parts(*lists)
    with torch.autocast(parts[0].components.device.type, enabled=False):
        for kernel in kernels():
            if (assembled := kernel.matrices(parts, dtype)) is not None:
                return assembled
        return [assemble(part, dtype) for part in parts]


def _matrices_backward(grads: Sequence[Tensor], *lists: Any) -> list[Tensor]:
    parts = _parts(*lists)
    with torch.autocast(parts[0].components.device.type, enabled=False):
        pairs = next((made for kernel in kernels() if (made := kernel.matrix_gradients(parts, grads)) is not None), None)
        if pairs is None:
            pairs = [gradients(part, g, part.table is not None) for part, g in zip(parts, grads, strict=True)]
    return [gw for gw, _ in pairs] + [g_table for _, g_table in pairs if g_table is not None]


def _fake(*inputs: Any) -> list[Tensor]:
    *lists, dtype = inputs
    made = []
    for part in _parts(*lists):
        w, kernel = part.components, part.components.shape[3:]
        matrix = w.new_empty(part.out.channels, part.inp.channels, *kernel, dtype=dtype)
        made.append(matrix.contiguous(memory_format=torch.channels_last) if is_channels_last(w) else matrix)
    return made


def _fake_backward(grads: Sequence[Tensor], components: Sequence[Tensor], tables: Sequence[Tensor], *_: object) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in (*components, *tables)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
    ctx.set_materialize_grads(False)  # unused layers get no gradient
    ctx.inputs = inputs[:4]
    ctx.versions = _versions(*inputs[:2])


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Sequence[Tensor | None] | None, ...]:
    _check(ctx.versions, *ctx.inputs[:2])
    used = [(part, g) for part, g in zip(_parts(*ctx.inputs), grads, strict=True) if g is not None]
    gw, g_tables = map(iter, _gradients([part for part, _ in used], [g for _, g in used]))
    by_weight = [None if g is None else next(gw) for g in grads]
    by_table = [None if g is None else next(g_tables) for g, text in zip(grads, ctx.inputs[2], strict=True) if not text]
    return by_weight, by_table, None, None, None


def _gradients(parts: list[Part], grads: list[Tensor]) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return the gradients of the components and of the tables; differentiable ones by the definition."""
    if not torch.is_grad_enabled():
        found = torch.ops.zoo.matrices_backward(grads, *_lists(parts)) if parts else []
        return found[: len(parts)], found[len(parts) :]
    gw: list[Tensor | None] = []
    g_tables: list[Tensor | None] = []
    for part, g in zip(parts, grads, strict=True):
        inputs = part.components, action_of(part)
        matrix, needs = real_matrix(inputs[1], inputs[0], part.out, part.inp), [t.requires_grad for t in inputs]
        pair = differentiable_gradients(matrix, inputs, needs, g.to(matrix.dtype))
        gw.append(pair[0])
        g_tables += pair[1:] if part.table is not None else []
    return gw, g_tables


_LIBRARY.impl("matrices", _matrices, "CompositeExplicitAutograd")
_LIBRARY.impl("matrices_backward", _matrices_backward, "CompositeExplicitAutograd")
_registry.register_fake("zoo::matrices", _fake, lib=_LIBRARY)
_registry.register_fake("zoo::matrices_backward", _fake_backward, lib=_LIBRARY)
_registry.register_autograd("zoo::matrices", _backward, setup_context=_setup_context, lib=_LIBRARY)
