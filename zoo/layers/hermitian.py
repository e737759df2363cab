"""Attention by the norm of a product, in tiles of queries: no tensor of [L, M] outlives its tile."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.errors import InputError

CPU_TILE, GPU_TILE = 2**19, 2**26
"""Products that are computed at a time: on a CPU by each thread, which its cache holds."""


class Tile(NamedTuple):
    """Some heads, some of their queries, how many of the first keys they see, and the seed of their dropout."""

    heads: slice
    queries: slice
    keys: int
    seed: int


class Visible(NamedTuple):
    """Which keys count: ``mask`` is bool [N, M], False at padding; the first of causal queries sees ``first`` keys."""

    mask: Tensor | None
    first: int | None
    dropout: float
    seed: int

    def tiles(self, k: Tensor, queries: int) -> Iterator[Tile]:
        """Cut heads and queries."""
        (heads, n, keys, _), most = k.shape, torch.get_num_threads() * CPU_TILE if k.is_cpu else GPU_TILE
        rows = min(queries, max(32, most // (n * keys)))
        together = max(1, most // (n * keys * rows))
        for number, (head, row) in enumerate((h, r) for h in range(0, heads, together) for r in range(0, queries, rows)):
            seen = keys if self.first is None else max(0, min(keys, self.first + row + rows - 1))
            yield Tile(slice(head, head + together), slice(row, row + rows), seen, self.seed + number)

    def weights(self, scores: Tensor, tile: Tile) -> Tensor:
        """Turn scores [N, t, M], which are changed, into weights; those of a query without any key are zero."""
        hidden = None if self.mask is None else ~self.mask[tile.heads, None, : tile.keys]
        if self.first is not None:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(self.first + tile.queries.start)
            hidden = later if hidden is None else hidden | later
        if hidden is None:
            return scores.softmax(-1)
        weights = scores.masked_fill_(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        every_query_has_keys = self.mask is None and (self.first is None or self.first > 0)
        return weights if every_query_has_keys else weights.masked_fill(hidden, 0.0)

    def kept(self, weights: Tensor, tile: Tile) -> Tensor | float:
        """Return what dropout multiplies the weights of a tile by, the same at every call."""
        if not self.dropout:
            return 1.0
        noise = torch.Generator(weights.device).manual_seed(tile.seed)
        drawn = torch.rand(weights.shape, generator=noise, device=weights.device)
        return (drawn >= self.dropout).to(weights.dtype).div_(1 - self.dropout)


class HermitianAttention(torch.autograd.Function):
    """Weigh values [N, M, e] by softmax(|z|), z_k = q . K_k; for the gradient every tile is computed again.

    Queries are [N, L, c] with the scale in them, keys [N, n, M, c], all contiguous and of one dtype; the result is [N, L, e].
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
                weights = (weights * visible.kept(weights, tile)).to(values.dtype)
                result[tile.heads, tile.queries] = weights @ values[tile.heads, : tile.keys]
        return result

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> Any:
        """Compute the gradients tile by tile; for gradients of these, in one piece."""
        q, keys, values = ctx.saved_tensors
        visible: Visible = ctx.visible
        if torch.is_grad_enabled():
            return *_differentiable_gradients(q, keys, values, visible, given), None
        grad_q, grad_keys, grad_values = torch.empty_like(q), torch.zeros_like(keys), torch.zeros_like(values)
        with torch.autocast(q.device.type, enabled=False):
            for tile in visible.tiles(keys, q.shape[1]):
                z, repeated = _products(q, keys, tile)
                norm = _norm(z)
                weights = visible.weights(norm, tile)
                kept, back = visible.kept(weights, tile), given[tile.heads, tile.queries]
                part = values[tile.heads, : tile.keys]
                grad_values[tile.heads, : tile.keys].baddbmm_((weights * kept).to(back.dtype).mT, back)
                grad = (back @ part.mT).to(weights.dtype) * kept
                grad = grad.sub_(torch.linalg.vecdot(grad, weights).unsqueeze(-1)).mul_(weights)  # through the softmax
                # The gradient of a norm is zero at zero.
                grad = z.mul_(grad.div_(norm.clamp_min_(1e-30)).unsqueeze(1)).flatten(0, 1).to(q.dtype)
                grad_keys[tile.heads].flatten(0, 1)[:, : tile.keys].baddbmm_(grad.mT, repeated)
                down = grad @ keys[tile.heads, :, : tile.keys].flatten(0, 1)
                grad_q[tile.heads, tile.queries] = down.unflatten(0, z.shape[:2]).sum(1)
        return grad_q, grad_keys, grad_values, None


def _products(q: Tensor, keys: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
    """Return the products of queries and keys, [N, n, t, M] in float32 or wider, and the queries once for each component."""
    part = keys[tile.heads, :, : tile.keys]
    repeated = q[tile.heads, None, tile.queries].expand(-1, part.shape[1], -1, -1).flatten(0, 1)
    z = (repeated @ part.flatten(0, 1).mT).unflatten(0, part.shape[:2])
    return z.to(torch.promote_types(z.dtype, torch.float32)), repeated


def _norm(z: Tensor) -> Tensor:
    """Return the Euclidean norm over components, [N, n, t, M] to [N, t, M]; torch's own is many times slower on this axis."""
    total = z[:, 0].square()
    for component in range(1, z.shape[1]):
        total.addcmul_(z[:, component], z[:, component])
    return total.sqrt_()


def _differentiable_gradients(q: Tensor, keys: Tensor, values: Tensor, visible: Visible, given: Tensor) -> tuple[Tensor, ...]:
    if visible.dropout:
        raise InputError("hermitian attention has no second derivatives with dropout: set dropout=0")
    inputs = [t if t.requires_grad else t.detach().requires_grad_() for t in (q, keys, values)]
    scores = torch.linalg.vector_norm(inputs[0].unsqueeze(1) @ inputs[1].mT, dim=1)
    every = Tile(slice(None), slice(0, None), keys.shape[2], 0)
    return torch.autograd.grad(visible.weights(scores + 0, every) @ inputs[2], inputs, given, create_graph=True)
