"""Torch's multi-head attention with an input projection over an algebra."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.layers.computed_weight import ComputedWeight
from zoo.layers.weight import Weight


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` whose input projection is a `Weight`; `zoo.convert` makes it from a built one.

    It takes the arguments of torch's module and returns what that returns. The matrix is assembled once per call.
    """

    def __init__(self, old: nn.MultiheadAttention, in_proj: Weight) -> None:
        options: dict[str, Any] = {"bias": old.in_proj_bias is not None, "dropout": old.dropout, "batch_first": old.batch_first}
        super().__init__(old.embed_dim, old.num_heads, add_zero_attn=old.add_zero_attn, device="meta", **options)
        del self.in_proj_weight
        self.in_proj, self.out_proj = in_proj, old.out_proj
        self.in_proj_bias, self.bias_k, self.bias_v = old.in_proj_bias, old.bias_k, old.bias_v
        self.train(old.training)

    @property
    def in_proj_weight(self) -> Tensor:  # type: ignore[override]
        """The real matrix, [3 * embed_dim, embed_dim], which the containers of torch read."""
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
        if self.in_proj.is_matrix:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        options: dict[str, Any] = {"need_weights": need_weights, "average_attn_weights": average_attn_weights}
        options |= {"is_causal": is_causal, "training": self.training}
        dtype = query.dtype
        options["key_padding_mask"] = F._canonical_mask(
            key_padding_mask, "key_padding_mask", F._none_or_dtype(attn_mask), "attn_mask", dtype
        )
        options["attn_mask"] = F._canonical_mask(attn_mask, "attn_mask", None, "", dtype, check_other=False)
        is_transposed = self.batch_first and query.dim() == 3
        # What was one tensor stays one, so that torch projects it once.
        turned = {id(t): t.transpose(0, 1) if is_transposed else t for t in (query, key, value)}
        inputs: Any = [turned[id(t)] for t in (query, key, value)]
        last: Any = self.out_proj
        matrix = last.weight_module.matrix() if isinstance(last, ComputedWeight) else last.weight
        parts: Any = (self.in_proj.matrix(), self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn, self.dropout)
        attend: Any = F.multi_head_attention_forward
        y, weights = attend(*inputs, self.embed_dim, self.num_heads, *parts, matrix, last.bias, **options)
        return (y.transpose(0, 1) if is_transposed else y), weights
