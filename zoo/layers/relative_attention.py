"""Attention with relative positions and a memory, as in Transformer-XL."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.layers.attention import check_heads
from zoo.layers.kv_cache import KVCache
from zoo.layers.linear import Linear
from zoo.layers.token_embedding import trigonometric


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
        if cache is not None and length == 1 and mask is None:  # a new token sees all of them
            return self._attend(q, k, v, bias, scale)
        hidden = torch.ones(length, keys, dtype=torch.bool, device=x.device).triu(keys - length + 1)
        if mask is not None:
            # Padding attends to itself: its result is not used, but without any key it would be NaN.
            itself = torch.eye(length, keys, dtype=torch.bool, device=x.device).roll(keys - length, 1)
            hidden = hidden | (~mask[:, None, None] & ~itself)
        bias = bias.masked_fill(hidden, float("-inf"))
        return self._attend(q, k, v, bias, scale)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
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
