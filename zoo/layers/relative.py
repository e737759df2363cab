"""Attention that knows how far words stand apart, and reads a memory: that of Transformer-XL."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.layers.attention import check_heads
from zoo.layers.kv_cache import KVCache
from zoo.layers.linear import Linear
from zoo.layers.positions import trigonometric


class RelativeAttention(nn.Module):
    r"""Causal self-attention with relative positions (Dai et al. 2019, section 3.3), its projections over any algebra.

    A query at place i and a key at place j <= i of a head fit by the real dot products

        ((q_i + u) . k_j + (q_i + v) . W_r R_(i - j)) / sqrt(c)

    with R the trigonometric encoding of a distance, W_r a projection like that of the keys, u and v one learned vector per
    head, and c the channels of a head.

    Args:
        algebra: The product, of dimension n.
        dim: Real channels, a multiple of heads * n.
        heads: Heads, of dim / heads channels each.
        dropout: Probability to drop an attention weight in training.
        bias: Whether the projections have biases; that of distances has none.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.
        gain: Factor on the initial standard deviation of the output projection.

    Attributes:
        qkv: The projection of words to queries, keys and values.
        distance: W_r.
        u, v: The learned vectors, [H, c].
        proj: The projection of the heads to the output.

    Raises:
        InputError: If dim does not split into heads of whole elements.

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
        dropout: float = 0.0,
        bias: bool = True,
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        check_heads(dim, heads, algebra.n)
        self.dim, self.heads, self.dropout = dim, heads, dropout
        self.qkv = Linear(algebra, dim, 3 * dim, bias, blocks=(1, 3 * heads), init=init)
        self.distance = Linear(algebra, dim, dim, False, blocks=(1, heads), init=init)
        self.proj = Linear(algebra, dim, dim, bias, blocks=(heads, 1), init=init, gain=gain)
        self.u, self.v = (nn.Parameter(torch.zeros(heads, dim // heads)) for _ in range(2))

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, *, cache: KVCache | None = None
    ) -> Tensor:
        """Attend: [B, L, dim] to [B, L, dim].

        Args:
            x: The words.
            memory: Features of the M words before them, [B, M, dim], to which no gradient flows; None for none.
            mask: bool [B, K], True where a key is real, those of the memory or the cache included; None if all are.
            cache: Keys and values of what was read before, in place of a memory; those of x are added.
        """
        length = x.shape[1]
        wide = self.qkv(x if memory is None else torch.cat([memory.detach(), x], 1))
        q, k, v = (t.transpose(1, 2) for t in wide.unflatten(-1, (3, self.heads, -1)).unbind(2))
        q = q[:, :, -length:]
        if cache is not None:
            k, v = cache.append(self, k, v)
        scale, keys = q.shape[-1] ** -0.5, k.shape[2]
        bias = scale * self._by_distance(q + self.v[:, None], keys)
        unseen = torch.ones(length, keys, dtype=torch.bool, device=x.device).triu(keys - length + 1)
        if mask is not None:
            # Every word sees itself: padding, whose result nobody reads, would else have no key at all.
            itself = torch.eye(length, keys, dtype=torch.bool, device=x.device).roll(keys - length, 1)
            unseen = unseen | (~mask[:, None, None] & ~itself)
        bias = bias.masked_fill(unseen, float("-inf"))
        y = F.scaled_dot_product_attention(q + self.u[:, None], k, v, bias, self.dropout if self.training else 0.0, scale=scale)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out

    def _by_distance(self, q: Tensor, keys: int) -> Tensor:
        """Return q_i . W_r R_(i - j) for queries [B, H, L, c] that are the last of so many keys: [B, H, L, keys].

        What lies behind a query, j > i, is of no meaning.
        """
        batch, heads, length, _ = q.shape
        position_ids = torch.arange(keys - 1, -1, -1, device=q.device)
        r = self.distance(trigonometric(position_ids, self.dim, q)).unflatten(-1, (heads, -1))
        scores = torch.einsum("bhic,khc->bhik", q, r)
        # Row i has its distances from keys - 1 down to 0; it is to begin length - 1 - i columns further on (their App. B).
        shifted = F.pad(scores, (1, 0)).view(batch, heads, keys + 1, length)
        return shifted[:, :, 1:].reshape(batch, heads, length, keys)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.dim}, heads={self.heads}" + (f", dropout={self.dropout}" if self.dropout else "")
