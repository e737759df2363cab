"""Multi-head attention over any algebra, with rotary or relative positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.errors import InputError, check_choice
from zoo.layers.kv_cache import KVCache
from zoo.layers.linear import Linear
from zoo.layers.positions import rotated, rotation, trigonometric
from zoo.layers.scores import SCORES, arrange, attend_arranged


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017) whose projections, and optionally its scores, are products over an algebra.

    Queries, keys, values and heads are made of whole elements: every head is component-major by itself.

    Args:
        algebra: The product, of dimension n.
        dim: Real channels.
        heads: Heads.
        head_dim: Real channels of a head, whole elements; by default dim / heads.
        score: ``dot``, ``product`` or ``hermitian``, see `zoo.layers.scores.attend`.
        dropout: Probability to drop an attention weight in training.
        bias: Whether the projections have biases.
        rotary: Whether queries and keys are rotated by their positions, see `rotate`; a head has a multiple of 2 * n
            channels then.
        cross: Whether keys and values come from a second sequence: projections ``q`` and ``kv`` in place of ``qkv``.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.
        gain: Factor on the initial standard deviation of the output projection.

    Raises:
        InputError: If a head is not of whole elements, or an option is unknown or does not fit.

    Example:
        >>> Attention(Algebra(torch.ones(2, 2, 2)), 8, heads=2)(torch.ones(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        algebra: Algebra,
        dim: int,
        heads: int,
        *,
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
        check_choice("score", score, SCORES)
        if not 0 <= dropout < 1:
            raise InputError(f"dropout={dropout}: must be in [0, 1)")
        if rotary and cross:
            raise InputError("rotary positions are for self attention only: they measure distances within one text")
        check_heads(dim, heads, algebra.n, rotary, head_dim=head_dim)
        self.dim, self.heads, self.n, self.score = dim, heads, algebra.n, score
        self.head_dim = dim // heads if head_dim is None else head_dim
        inner = self.head_dim * heads
        self.dropout, self.rotary, self.cross = dropout, rotary, cross
        self.product = None if score == "dot" else algebra.for_layer()
        if cross:
            self.q = Linear(algebra, dim, inner, bias, blocks=(1, heads), init=init)
            self.kv = Linear(algebra, dim, 2 * inner, bias, blocks=(1, 2 * heads), init=init)
        else:
            self.qkv = Linear(algebra, dim, 3 * inner, bias, blocks=(1, 3 * heads), init=init)
        self.proj = Linear(algebra, inner, dim, bias, blocks=(heads, 1), init=init, gain=gain)

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
            mask: bool [B, M], False at padding; with a cache M counts the cached keys and those of x.
            causal: Whether a token attends only to itself and to tokens before it.
            position_ids: Positions of the tokens of x for rotary positions, int64 [L] or [B, L], by default 0, 1, ..., L - 1;
                with a cache those that `KVCache.advance` returned.
            cache: Keys and values of the tokens before, to which those of x are added. Cross-attention projects its context
                only once.
        """
        if self.cross != (context is not None):
            raise InputError(
                "cross attention reads x and context" if self.cross else "self attention reads x alone: pass cross=True"
            )
        structure = None if self.product is None else self.product.table(x)
        if context is None:
            q, k, v = self._split(self.qkv(x), position_ids, cache)
            k = arrange(k, structure, self.score)
            if cache is not None:
                k, v = cache.append(self, k, v)
        else:
            (q,) = self._split(self.q(x))
            kept = None if cache is None else cache.get(self)
            if kept is None:
                k, v = self._split(self.kv(context))
                kept = arrange(k, structure, self.score), v
                if cache is not None:
                    cache.append(self, *kept)
            k, v = kept
        y = attend_arranged(q, k, v, self.score, mask, causal, self.dropout if self.training else 0.0)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out

    def _split(self, y: Tensor, position_ids: Tensor | None = None, cache: KVCache | None = None) -> tuple[Tensor, ...]:
        """Split projections [B, L, k H c] into k tensors [B, H, L, c], and rotate all but the last by their positions."""
        if not self.rotary:
            return tuple(t.transpose(1, 2) for t in y.unflatten(-1, (-1, self.heads, self.head_dim)).unbind(2))
        heads = y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        both, v = heads.split([2 * self.heads, self.heads], 1)
        length = 0 if cache is None else cache.length

        def turn() -> tuple[Tensor, Tensor]:
            return rotation(both, self.n, position_ids, length)

        key = "rotation", self.n, self.head_dim, y.dtype
        angles = turn() if cache is None or position_ids is None else cache.once(key, position_ids, turn)
        return *rotated(both, self.n, *angles).chunk(2, 1), v

    def extra_repr(self) -> str:
        """Show the sizes, and what is not the default."""
        shown = {"score": "dot", "dropout": 0.0, "rotary": False, "cross": False}
        changed = [f"{name}={getattr(self, name)}" for name, default in shown.items() if getattr(self, name) != default]
        return ", ".join([f"{self.dim}, heads={self.heads}", *changed])


def check_heads(dim: int, heads: int, n: int, rotary: bool = False, backbone: str = "", head_dim: int | None = None) -> None:
    """Check that every head, of dim / heads channels or of ``head_dim``, holds whole elements, and pairs of them if ``rotary``.

    The error proposes a size, for ``backbone`` if one is named.

    Example:
        >>> check_heads(64, 4, 5, backbone="vit")
        Traceback (most recent call last):
        zoo.errors.InputError: dim=64: each of heads=4 must hold whole elements of an algebra with n = 5: write vit(dim=80)
    """
    if heads < 1:
        raise InputError(f"heads={heads}: must be at least 1")
    unit = n * (1 + rotary)
    name, size, unit = ("dim", dim, unit * heads) if head_dim is None else ("head_dim", head_dim, unit)
    if size < 1 or size % unit:
        parts = [f"whole elements of an algebra with n = {n}"] * (n > 1) + ["pairs of channels to rotate"] * rotary
        content, fitting = " and ".join(parts) or "whole channels", f"{name}={max(1, -(-size // unit)) * unit}"
        proposal = f"write {backbone}({fitting})" if backbone else f"use {fitting}"
        raise InputError(f"{name}={size}: each of heads={heads} must hold {content}: {proposal}")


class RelativeAttention(nn.Module):
    r"""Causal self-attention with relative positions (Dai et al. 2019, section 3.3), its projections over any algebra.

    The score of a query at position i and a key at position j <= i of a head is the sum of real dot products

        ((q_i + u) . k_j + (q_i + v) . W_r R_(i - j)) / sqrt(c)

    with R the trigonometric encoding of a distance, W_r a projection like that of the keys, u and v one learned vector per
    head, and c the channels of a head.

    Arguments are those of `Attention`.

    Example:
        >>> RelativeAttention(Algebra(torch.ones(2, 2, 2)), 8, heads=2)(torch.ones(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        algebra: Algebra,
        dim: int,
        heads: int,
        *,
        head_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        check_heads(dim, heads, algebra.n, head_dim=head_dim)
        self.dim, self.heads, self.dropout = dim, heads, dropout
        self.head_dim = dim // heads if head_dim is None else head_dim
        inner = self.head_dim * heads
        self.qkv = Linear(algebra, dim, 3 * inner, bias, blocks=(1, 3 * heads), init=init)
        self.distance = Linear(algebra, dim, inner, False, blocks=(1, heads), init=init)
        self.proj = Linear(algebra, inner, dim, bias, blocks=(heads, 1), init=init, gain=gain)
        self.u, self.v = (nn.Parameter(torch.zeros(heads, self.head_dim)) for _ in range(2))

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, *, cache: KVCache | None = None
    ) -> Tensor:
        """Attend: [B, L, dim] to [B, L, dim].

        Args:
            x: Features of the tokens.
            memory: Features of the M tokens before them, [B, M, dim], to which no gradient flows; None for none.
            mask: bool [B, K], False at padding, the memory or the cached keys included; None if there is no padding.
            cache: Keys and values of the tokens before, in place of a memory; those of x are added.
        """
        length = x.shape[1]
        wide = self.qkv(x if memory is None else torch.cat([memory.detach(), x], 1))
        q, k, v = (t.transpose(1, 2) for t in wide.unflatten(-1, (3, self.heads, -1)).unbind(2))
        q = q[:, :, -length:]
        if cache is not None:
            k, v = cache.append(self, k, v)
        scale, keys = q.shape[-1] ** -0.5, k.shape[2]
        bias = scale * self._by_distance(q + self.v[:, None], keys, cache)
        if cache is None or length > 1 or mask is not None:  # a single new token sees all keys
            hidden = torch.ones(length, keys, dtype=torch.bool, device=x.device).triu(keys - length + 1)
            if mask is not None:
                # Padding attends to itself: its result is not used, but without any key it would be NaN.
                itself = torch.eye(length, keys, dtype=torch.bool, device=x.device).roll(keys - length, 1)
                hidden = hidden | (~mask[:, None, None] & ~itself)
            bias = bias.masked_fill(hidden, float("-inf"))
        y = F.scaled_dot_product_attention(q + self.u[:, None], k, v, bias, self.dropout if self.training else 0.0, scale=scale)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out

    def _by_distance(self, q: Tensor, keys: int, cache: KVCache | None = None) -> Tensor:
        """Return q_i . W_r R_(i - j) for queries [B, H, L, c] that are the last of so many keys: [B, H, L, keys].

        Entries with j > i have no meaning; the caller masks them.
        """
        batch, heads, length, _ = q.shape

        def project(distances: Tensor) -> Tensor:
            y: Tensor = self.distance(trigonometric(distances.to(q.device), self.dim, q))
            return y.view(*distances.shape, heads, -1)

        r = project(torch.arange(keys, device=q.device)) if cache is None else cache.table(self, keys, project)
        scores = torch.einsum("bhic,khc->bhik", q, r).flip(-1)
        # Row i holds the distances keys - 1 down to 0 and must be shifted left by length - 1 - i columns (their App. B).
        shifted = F.pad(scores, (1, 0)).view(batch, heads, keys + 1, length)
        return shifted[:, :, 1:].reshape(batch, heads, length, keys)

    def no_weight_decay(self) -> set[str]:
        """Name the parameters that weight decay must leave alone, by timm's convention: u and v, which act as biases."""
        return {"u", "v"}

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.dim}, heads={self.heads}" + (f", dropout={self.dropout}" if self.dropout else "")
