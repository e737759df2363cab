"""Hermitian attention in tiles of queries, which never stores a whole [L, M] tensor."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CPU_TILE, GPU_TILE = 2**19, 2**26
"""Scores of a tile: on a CPU for each thread, so that they fit in its cache."""


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
    def backward(ctx: Any, g: Tensor) -> Any:
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
