"""Multi-head attention over any algebra, with rotary or relative positions."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.algebras import algebra as named
from zoo.errors import InputError, check_choice
from zoo.nn.embedding import apply_rotation, rotation, trigonometric
from zoo.nn.kv_cache import KVCache
from zoo.nn.linear import Linear
from zoo.nn.scores import SCORES, arrange, attend


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017) with projections, and optionally scores, over an algebra.

    Every head of queries, keys and values consists of whole elements and is component-major.

    Args:
        head_dim: Real channels of a head, a multiple of n; by default dim / heads.
        score: ``dot``, ``product`` or ``hermitian``, see `zoo.nn.scores.attend`.
        dropout: Dropout probability of the attention weights.
        rotary: Whether to apply rotary positions in self-attention, to heads with a multiple of 2 n channels.
        cross: Whether keys and values come from a second sequence: projections ``q`` and ``kv`` instead of ``qkv``.
        gain: Factor on the initial standard deviation of the output projection.

    Example:
        >>> Attention(8, heads=2, algebra=Algebra(torch.ones(2, 2, 2)))(torch.ones(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        algebra: Algebra | str,
        head_dim: int | None = None,
        score: str = "dot",
        dropout: float = 0.0,
        bias: bool = True,
        rotary: bool = False,
        cross: bool = False,
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        algebra = named(algebra)
        check_choice("score", score, SCORES)
        check_heads(dim, heads, algebra.n, rotary, head_dim=head_dim)
        self.dim, self.heads, self.n, self.score = dim, heads, algebra.n, score
        self.head_dim = dim // heads if head_dim is None else head_dim
        inner = self.head_dim * heads
        self.dropout, self.rotary, self.cross = dropout, rotary, cross
        self.product = None if score == "dot" else algebra.for_layer()
        if cross:
            self.q = Linear(dim, inner, bias, algebra=algebra, blocks=(1, heads), init=init)
            self.kv = Linear(dim, 2 * inner, bias, algebra=algebra, blocks=(1, 2 * heads), init=init)
        else:
            self.qkv = Linear(dim, 3 * inner, bias, algebra=algebra, blocks=(1, 3 * heads), init=init)
        self.proj = Linear(inner, dim, bias, algebra=algebra, blocks=(heads, 1), init=init, gain=gain)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        *,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend: [B, L, dim] to [B, L, dim].

        Args:
            x: Source of the queries; in self-attention also of keys and values.
            context: Source of keys and values in cross-attention, [B, M, dim].
            mask: bool [B, M], False at padding; with a cache, M includes the cached keys.
            causal: Whether a token attends only to itself and to previous tokens.
            position_ids: Positions of the tokens of x for rotary positions, int64 [L] or [B, L], by default 0, 1, ..., L - 1;
                with a cache the result of `KVCache.advance`.
            cache: Keys and values of previous tokens, to which those of x are appended. Cross-attention projects its context
                only once.
        """
        if self.cross != (context is not None):
            raise InputError("cross-attention needs a context" if self.cross else "context is only allowed with cross=True")
        if context is None:
            q, k, v = self._split(self.qkv(x), position_ids, cache)
            k = self._arrange(k)
            if cache is not None:
                k, v = cache.append(self, k, v)
        else:
            (q,) = self._split(self.q(x))
            cached = None if cache is None else cache.get(self)
            if cached is None:
                k, v = self._split(self.kv(context))
                cached = self._arrange(k), v
                if cache is not None:
                    cache.append(self, *cached)
            k, v = cached
        y = attend(q, k, v, self.score, mask, causal, self.dropout if self.training else 0.0)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out

    def _arrange(self, k: Tensor) -> Tensor:
        return k if self.product is None else arrange(k, self.product.table(k), self.score)

    def _split(self, y: Tensor, position_ids: Tensor | None = None, cache: KVCache | None = None) -> tuple[Tensor, ...]:
        """Split projections [B, L, k H c] into k tensors [B, H, L, c], and apply rotary positions to queries and keys."""
        if not self.rotary:
            return tuple(t.transpose(1, 2) for t in y.unflatten(-1, (-1, self.heads, self.head_dim)).unbind(2))
        heads = y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        qk, v = heads.split([2 * self.heads, self.heads], 1)
        make = partial(rotation, qk, self.n, position_ids, 0 if cache is None else cache.length)
        key = "rotation", self.n, self.head_dim, y.dtype
        cos, sin = make() if cache is None or position_ids is None else cache.once(key, position_ids, make)
        return *apply_rotation(qk, self.n, cos, sin).chunk(2, 1), v

    def extra_repr(self) -> str:
        """Show the sizes and the score."""
        return f"{self.dim}, heads={self.heads}, score={self.score}"


def check_heads(dim: int, heads: int, n: int, rotary: bool = False, backbone: str = "", head_dim: int | None = None) -> None:
    """Check that a head, of dim / heads or ``head_dim`` channels, holds whole elements, and pairs of them if ``rotary``.

    The error suggests a valid size, as an option of ``backbone`` if given.
    """
    if heads < 1:
        raise InputError(f"heads={heads}: must be at least 1")
    unit = n * (1 + rotary)
    name, size, unit = ("dim", dim, unit * heads) if head_dim is None else ("head_dim", head_dim, unit)
    if size < 1 or size % unit:
        parts = [f"whole elements of an algebra with n = {n}"] * (n > 1) + ["pairs of channels to rotate"] * rotary
        content, fitting = " and ".join(parts) or "whole channels", f"{name}={max(1, -(-size // unit)) * unit}"
        shared = f", heads={heads}" if heads > 1 else ""
        proposal = f"write {backbone}({fitting}{shared})" if backbone else f"use {fitting}"
        raise InputError(f"{name}={size}: each of heads={heads} must hold {content}: {proposal}")


class RelativeAttention(nn.Module):
    r"""Causal self-attention with relative positions (Dai et al. 2019, section 3.3), its projections over any algebra.

    In each head the score of a query at position i and a key at position j <= i is the sum of real dot products

        ((q_i + u) . k_j + (q_i + v) . W_r R_(i - j)) / sqrt(c)

    with R the trigonometric encoding of a distance, W_r a projection like the one of the keys, u and v learned vectors of each
    head, and c the channels of a head. For the arguments see `Attention`.

    Example:
        >>> RelativeAttention(8, heads=2, algebra=Algebra(torch.ones(2, 2, 2)))(torch.ones(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        algebra: Algebra | str,
        head_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        algebra = named(algebra)
        check_heads(dim, heads, algebra.n, head_dim=head_dim)
        self.dim, self.heads, self.dropout = dim, heads, dropout
        self.head_dim = dim // heads if head_dim is None else head_dim
        inner = self.head_dim * heads
        self.qkv = Linear(dim, 3 * inner, bias, algebra=algebra, blocks=(1, 3 * heads), init=init)
        self.distance = Linear(dim, inner, False, algebra=algebra, blocks=(1, heads), init=init)
        self.proj = Linear(inner, dim, bias, algebra=algebra, blocks=(heads, 1), init=init, gain=gain)
        self.u, self.v = (nn.Parameter(torch.zeros(heads, self.head_dim)) for _ in range(2))

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, *, cache: KVCache | None = None
    ) -> Tensor:
        """Attend: [B, L, dim] to [B, L, dim].

        Args:
            memory: Features of the M previous tokens, [B, M, dim], which receive no gradient.
            mask: bool [B, K], False at padding, including the memory or the cached keys; None without padding.
            cache: Keys and values of previous tokens, an alternative to a memory; those of x are appended.
        """
        length = x.shape[1]
        qkv = self.qkv(x if memory is None else torch.cat([memory.detach(), x], 1))
        q, k, v = (t.transpose(1, 2) for t in qkv.unflatten(-1, (3, self.heads, -1)).unbind(2))
        q = q[:, :, -length:]
        if cache is not None:
            k, v = cache.append(self, k, v)
        scale, keys = q.shape[-1] ** -0.5, k.shape[2]
        bias = scale * self._position_scores(q + self.v[:, None], keys, cache)
        if cache is None or length > 1 or mask is not None:  # a single new token attends to all keys
            hidden = torch.ones(length, keys, dtype=torch.bool, device=x.device).triu(keys - length + 1)
            if mask is not None:
                # Padding attends to itself, because a softmax over no keys is NaN.
                diagonal = torch.eye(length, keys, dtype=torch.bool, device=x.device).roll(keys - length, 1)
                hidden = hidden | (~mask[:, None, None] & ~diagonal)
            bias = bias.masked_fill(hidden, float("-inf"))
        y = F.scaled_dot_product_attention(q + self.u[:, None], k, v, bias, self.dropout if self.training else 0.0, scale=scale)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out

    def _position_scores(self, q: Tensor, keys: int, cache: KVCache | None = None) -> Tensor:
        """Return q_i . W_r R_(i - j) for the last L queries [B, H, L, c], [B, H, L, keys]; the caller must mask j > i."""
        batch, heads, length, _ = q.shape

        def project(distances: Tensor) -> Tensor:
            y: Tensor = self.distance(trigonometric(distances.to(q.device), self.dim, q))
            return y.view(*distances.shape, heads, -1)

        r = project(torch.arange(keys, device=q.device)) if cache is None else cache.table(self, keys, project)
        scores = torch.einsum("bhic,khc->bhik", q, r).flip(-1)
        # Row i holds the distances keys - 1, ..., 0 and is shifted left by length - 1 - i columns (Dai et al. 2019, App. B).
        shifted = F.pad(scores, (1, 0)).view(batch, heads, keys + 1, length)
        return shifted[:, :, 1:].reshape(batch, heads, length, keys)

    def no_weight_decay(self) -> set[str]:
        """Return the parameters without weight decay, by timm's convention: u and v, which act as biases."""
        return {"u", "v"}
