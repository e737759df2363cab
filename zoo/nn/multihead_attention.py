"""Torch's multi-head attention with projections over any algebra."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.nn.linear import ComputedWeight, Linear
from zoo.nn.weight import Weight


class MultiheadAttention(nn.MultiheadAttention):
    """Multi-head attention with the arguments and results of `torch.nn.MultiheadAttention`, its projections over an algebra.

    Every head of queries, keys and values consists of whole elements and is component-major. `zoo.nn.Attention` also has scores
    over the algebra, rotary positions and a cache. ``kdim`` and ``vdim`` must be equal to ``embed_dim``.

    Example:
        >>> x = torch.ones(5, 1, 8)
        >>> MultiheadAttention(8, 2, algebra=Algebra(torch.ones(2, 2, 2)))(x, x, x)[0].shape
        torch.Size([5, 1, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        algebra: Algebra | str,
        init: str = "variance",
    ) -> None:
        for name, size in (("kdim", kdim), ("vdim", vdim)):
            if size not in (None, embed_dim):
                raise InputError(f"{name}={size}: must be equal to embed_dim={embed_dim}", code="unsupported")
        # On the meta device, because all parameters are replaced.
        options: dict[str, Any] = {"batch_first": batch_first, "device": "meta"}
        super().__init__(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, **options)
        del self.in_proj_weight
        self.in_proj = Weight(algebra, embed_dim, 3 * embed_dim, blocks=(1, 3 * num_heads), init=init)
        self.out_proj: Any = Linear(embed_dim, embed_dim, bias, algebra=algebra, blocks=(num_heads, 1), init=init)
        self.in_proj_bias: Any = nn.Parameter(torch.zeros(3 * embed_dim)) if bias else None
        if add_bias_kv:
            self.bias_k, self.bias_v = (nn.Parameter(torch.empty(1, 1, embed_dim)) for _ in range(2))
            nn.init.xavier_normal_(self.bias_k)
            nn.init.xavier_normal_(self.bias_v)

    @property
    def in_proj_weight(self) -> Tensor:  # type: ignore[override]
        """The real matrix, [3 * embed_dim, embed_dim], which torch's Transformer layers read."""
        weight: Tensor = self.in_proj()
        return weight

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, with the arguments and results of torch's module."""
        options: dict[str, Any] = {"key_padding_mask": key_padding_mask, "need_weights": need_weights, "attn_mask": attn_mask}
        options |= {"average_attn_weights": average_attn_weights, "is_causal": is_causal}
        if self.in_proj.is_matrix:
            return super().forward(query, key, value, **options)
        is_transposed = self.batch_first and query.dim() == 3
        # Keep the identity of equal arguments, so that torch projects them once.
        transposed = {id(t): t.transpose(0, 1) if is_transposed else t for t in (query, key, value)}
        inputs: Any = [transposed[id(t)] for t in (query, key, value)]
        last: Any = self.out_proj
        matrix = last.weight_module() if isinstance(last, ComputedWeight) else last.weight
        parts: Any = (self.in_proj(), self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout)
        attend: Any = F.multi_head_attention_forward
        y, weights = attend(
            *inputs, self.embed_dim, self.num_heads, *parts, matrix, last.bias, training=self.training, **options
        )
        return (y.transpose(0, 1) if is_transposed else y), weights
