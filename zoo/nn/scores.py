"""Attention functions with three kinds of scores."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.kernels.base import kernels
from zoo.kernels.internals import is_plain_mode, is_recording

SCORES = ("dot", "product", "hermitian")


def attend(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    score: str = "dot",
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    r"""Compute attention between component-major heads, [B, H, L, n d].

    With A the structure tensor, components i, j, k, and dot products over the c channels of a component:

    ``dot``: softmax(scale q . k) v, the real dot product of whole heads, as in a standard Transformer.
    ``product``: E_k = sum_ij A[i, j, k] q_i . k_j, and component k of the result is softmax(scale E_k) v_k, with a softmax for
    each component (Tay et al. 2019, Eq. 4 and section 3.2).
    ``hermitian``: softmax(scale |z|) v with z = q conj(k), where conj negates all components but 0, and |z| is the Euclidean
    norm over the components of z (Wang et al. 2020, Eq. 14, for any algebra).

    ``hermitian`` saves no [L, M] tensor for the backward pass, and neither do the others without dropout, unless both ``mask``
    and ``causal`` are given, in which case the combined mask, [B, L, M], is saved.

    Args:
        q: Queries, [B, H, L, n c].
        keys: Keys, [B, H, M, n c] for ``dot``, otherwise prepared by `arrange`, so that decoding prepares every key once.
        v: Values, [B, H, M, n d]; often d = c.
        mask: bool [B, M], False at padding. The result of a query without visible keys is zero.
        causal: Whether the queries are the last L of M tokens and attend only to keys up to their own position.
        dropout: Dropout probability of the weights.
        scale: Factor on the scores before the softmax, by default 1 / sqrt(n c).
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if q.shape[2] == 1:  # the last token attends to all keys; a branch, because torch.export needs a constant `is_causal`
        causal = False
    if score == "dot":
        return _attend_dot(q, keys, v, mask, causal, dropout, scale)
    if q.shape[2] > 1 and score == "product":
        return _attend_product(q, keys, v, mask, causal, dropout, scale)
    if q.shape[2] > 1 and not (torch.compiler.is_compiling() or is_recording(q) or not is_plain_mode()):
        return _attend_hermitian(q, keys, v, mask, causal, dropout, scale)
    return _attend_by_definition(q, keys, v, score, mask, causal, dropout, scale)


def arrange(k: Tensor, structure: Tensor, score: str) -> Tensor:
    """Arrange keys so that a real dot product with q gives a component of the score.

    [B, H, M, n c] becomes [B, H, n, M, n c]: sum_ij A[i, j, k] q_i . k_j = q . K_k, where component i of K_k is
    sum_j A[i, j, k] k_j, with conj(k_j) for ``hermitian``. The structure is A, [n, n, n].
    """
    n = structure.shape[0]
    if score == "hermitian":
        real, imaginary = k.tensor_split([k.shape[-1] // n], -1)
        k = torch.cat([real, -imaginary], -1)
    return torch.einsum("ijk,bhmjc->bhkmic", structure, k.unflatten(-1, (n, -1))).flatten(-2)


def _attend_hermitian(
    q: Tensor, keys: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend with the score ``hermitian`` by an installed kernel, or else by `HermitianAttention`."""
    batch, heads, queries, _ = q.shape
    if torch.is_autocast_enabled(q.device.type):
        q, keys, v = (t.to(torch.get_autocast_dtype(q.device.type)) for t in (q, keys, v))
    padding = None if mask is None else mask[:, None].expand(-1, heads, -1).flatten(0, 1)
    seed = int(torch.empty((), dtype=torch.int64).random_()) if dropout else 0
    visible = Visible(padding, keys.shape[3] - queries + 1 if causal else None, dropout, seed)
    q, keys, v = (t.flatten(0, 1).contiguous() for t in (q * scale, keys, v))
    for kernel in kernels():
        if (y := kernel.hermitian_attention(q, keys, v, *visible)) is not None:
            return y.view(batch, heads, queries, -1)
    tiled: Tensor = HermitianAttention.apply(q, keys, v, visible)
    return tiled.view(batch, heads, queries, -1)


def _attend_product(
    q: Tensor, keys: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend with the score ``product`` by torch's kernel, with one softmax for each component as n times as many heads."""
    n = keys.shape[2]
    # Queries and values are expanded, not copied: each head averages all components of the values, of which one is used.
    q, v = (t.flatten(0, 1).unsqueeze(1).expand(-1, n, -1, -1) for t in (q, v))
    if mask is not None:
        mask = mask[:, None].expand(-1, keys.shape[1], -1).flatten(0, 1)
    y = _attend_dot(q, keys.flatten(0, 1), v, mask, causal, dropout, scale)
    return _diagonal(y).view(*keys.shape[:2], q.shape[2], -1)


def _diagonal(y: Tensor) -> Tensor:
    """Select component k of the values that were averaged for component k: [..., n, L, n d] to [..., L, n d]."""
    components: Tensor = y.unflatten(-1, (y.shape[-3], -1)).diagonal(dim1=-4, dim2=-2)
    return components.movedim(-1, -2).flatten(-2)


def _attend_dot(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float, scale: float) -> Tensor:
    """Attend with torch's scaled_dot_product_attention."""
    width = v.shape[-1]
    # Torch's fused CPU kernel requires heads of equal width; its fallback saves all weights.
    q, k, v = (_widen(t, max(q.shape[-1], width)) for t in (q, k, v))
    if mask is None and (not causal or q.shape[2] == k.shape[2]):
        return F.scaled_dot_product_attention(q, k, v, None, dropout, causal, scale=scale)[..., :width]
    visible, empty = _visible(mask, causal, q, k)
    y = F.scaled_dot_product_attention(q, k, v, visible, dropout, scale=scale)[..., :width]
    return y.masked_fill(empty, 0)


def _attend_by_definition(
    q: Tensor, keys: Tensor, v: Tensor, score: str, mask: Tensor | None, causal: bool, dropout: float, scale: float
) -> Tensor:
    """Attend with the score ``product`` or ``hermitian`` by computing all scores."""
    scores = scale * (q.unsqueeze(2) @ keys.mT)
    if score == "hermitian":
        # The gradient of vector_norm at zero is zero, not NaN.
        scores = torch.linalg.vector_norm(scores, dim=2, keepdim=True)
    empty = None
    if mask is not None or causal:
        visible, empty = _visible(mask, causal, q, v)
        scores = scores.masked_fill(~visible.unsqueeze(2), float("-inf"))
    y = F.dropout(scores.softmax(-1), dropout) @ v.unsqueeze(2)
    y = y.squeeze(2) if score == "hermitian" else _diagonal(y)
    return y if empty is None else y.masked_fill(empty, 0)


def _visible(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mask of visible keys, [B or 1, 1, L or 1, M], and of queries without any, [B or 1, 1, L or 1, 1].

    A query without visible keys sees all keys, since a softmax over none is NaN; the caller must set its result to zero.
    """
    queries, keys = q.shape[2], k.shape[2]
    visible = torch.ones(1, 1, 1, keys, dtype=torch.bool, device=k.device) if mask is None else mask[:, None, None]
    if causal:
        visible = visible & torch.ones(queries, keys, dtype=torch.bool, device=k.device).tril(keys - queries)
    empty = ~visible.any(-1, keepdim=True)
    return visible | empty, empty


def _widen(t: Tensor, width: int) -> Tensor:
    """Pad channels with zeros to a width."""
    return t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1]))


CPU_TILE, GPU_TILE = 2**19, 2**26  # scores of a tile: on a CPU for each thread, so that they fit in its cache


class Tile(NamedTuple):
    """A range of heads, a range of queries, the number of visible keys, and the dropout seed."""

    heads: slice
    queries: slice
    keys: int
    seed: int


class Visible(NamedTuple):
    """The masks and dropout: ``mask`` is bool [N, M], False at padding; the first causal query attends to ``first`` keys."""

    mask: Tensor | None
    first: int | None
    dropout: float
    seed: int

    def tiles(self, k: Tensor, queries: int) -> Iterator[Tile]:
        """Split heads and queries into tiles."""
        (heads, n, keys, _), size = k.shape, torch.get_num_threads() * CPU_TILE if k.is_cpu else GPU_TILE
        rows = min(queries, max(32, size // (n * keys)))
        step = max(1, size // (n * keys * rows))
        for number, (head, row) in enumerate((h, r) for h in range(0, heads, step) for r in range(0, queries, rows)):
            visible = keys if self.first is None else max(0, min(keys, self.first + row + rows - 1))
            yield Tile(slice(head, head + step), slice(row, row + rows), visible, self.seed + number)

    def weights(self, scores: Tensor, tile: Tile) -> Tensor:
        """Return the softmax of scores [N, t, M], which are overwritten; zero for a query without visible keys."""
        hidden = None if self.mask is None else ~self.mask[tile.heads, None, : tile.keys]
        if self.first is not None:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(self.first + tile.queries.start)
            hidden = later if hidden is None else hidden | later
        if hidden is None:
            return scores.softmax(-1)
        weights = scores.masked_fill_(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        all_queries_have_keys = self.mask is None and (self.first is None or self.first > 0)
        return weights if all_queries_have_keys else weights.masked_fill(hidden, 0.0)

    def dropout_factors(self, weights: Tensor, tile: Tile) -> Tensor | float:
        """Return the dropout factors of a tile, the same at every call."""
        if not self.dropout:
            return 1.0
        noise = torch.Generator(weights.device).manual_seed(tile.seed)
        sample = torch.rand(weights.shape, generator=noise, device=weights.device)
        return (sample >= self.dropout).to(weights.dtype).div_(1 - self.dropout)


class HermitianAttention(torch.autograd.Function):
    """Average values [N, M, e] with weights softmax(|z|), z_k = q . K_k; tiles are recomputed in the backward pass.

    Queries are [N, L, c], multiplied by the scale, keys [N, n, M, c], all contiguous and of one dtype; the result is [N, L, e].
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, keys: Tensor, values: Tensor, visible: Visible) -> Tensor:
        """Compute the result tile by tile."""
        ctx.save_for_backward(q, keys, values)
        ctx.visible = visible
        result = values.new_empty(*q.shape[:2], values.shape[-1])
        with torch.autocast(q.device.type, enabled=False):
            for tile in visible.tiles(keys, q.shape[1]):
                weights = visible.weights(_norm(_products(q, keys, tile)[0]), tile)
                weights = (weights * visible.dropout_factors(weights, tile)).to(values.dtype)
                result[tile.heads, tile.queries] = weights @ values[tile.heads, : tile.keys]
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients tile by tile."""
        q, keys, values = ctx.saved_tensors
        visible: Visible = ctx.visible
        grad_q, grad_keys, grad_values = torch.empty_like(q), torch.zeros_like(keys), torch.zeros_like(values)
        with torch.autocast(q.device.type, enabled=False):
            for tile in visible.tiles(keys, q.shape[1]):
                z, repeated = _products(q, keys, tile)
                norm = _norm(z)
                weights = visible.weights(norm, tile)
                factors, g_tile = visible.dropout_factors(weights, tile), g[tile.heads, tile.queries]
                part = values[tile.heads, : tile.keys]
                grad_values[tile.heads, : tile.keys].baddbmm_((weights * factors).to(g_tile.dtype).mT, g_tile)
                grad = (g_tile @ part.mT).to(weights.dtype) * factors
                grad = grad.sub_(torch.linalg.vecdot(grad, weights).unsqueeze(-1)).mul_(weights)  # softmax backward
                # The gradient of a norm is zero at zero.
                grad = z.mul_(grad.div_(norm.clamp_min_(1e-30)).unsqueeze(1)).flatten(0, 1).to(q.dtype)
                grad_keys[tile.heads].flatten(0, 1)[:, : tile.keys].baddbmm_(grad.mT, repeated)
                grad = grad @ keys[tile.heads, :, : tile.keys].flatten(0, 1)
                grad_q[tile.heads, tile.queries] = grad.unflatten(0, z.shape[:2]).sum(1)
        return grad_q, grad_keys, grad_values, None


def _products(q: Tensor, keys: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
    """Return the products of queries and keys, [N, n, t, M] in float32 or wider, and the queries repeated n times."""
    part = keys[tile.heads, :, : tile.keys]
    repeated = q[tile.heads, None, tile.queries].expand(-1, part.shape[1], -1, -1).flatten(0, 1)
    z = (repeated @ part.flatten(0, 1).mT).unflatten(0, part.shape[:2])
    return z.to(torch.promote_types(z.dtype, torch.float32)), repeated


def _norm(z: Tensor) -> Tensor:
    """Return the Euclidean norm over components, [N, n, t, M] to [N, t, M], many times faster than torch's on this axis."""
    total = z[:, 0].square()
    for component in range(1, z.shape[1]):
        total.addcmul_(z[:, component], z[:, component])
    return total.sqrt_()
