"""The Transformer block: attention and a feed-forward network, each with a norm and a residual connection."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.kv_cache import KVCache

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


class Block(nn.Module):
    """Self-attention, optional cross-attention and a feed-forward network, each with a residual: [B, L, dim] to the same.

    Args:
        layers: The factory that knows the algebra.
        dim: Channels.
        heads: Attention heads.
        ffn: Hidden channels of the feed-forward network.
        score: How queries are compared with keys, see `zoo.layers.Attention`.
        rotary: Whether self-attention rotates queries and keys by their positions.
        norm: Name of the norm, see `zoo.layers.elements.norm`.
        norm_first: Whether the norm stands before each part (as in Tensor2Tensor) or after its residual (Vaswani et al. 2017).
        dropout: Probability in attention, in the feed-forward network, and before each residual.
        activation: ``relu`` or ``gelu``, in the feed-forward network.
        bias: Whether matrices and layer norms have biases.
        gain: Factor on the initial standard deviation of the matrices that add to the residual stream.
        cross: Whether the block attends to a source.

    Raises:
        InputError: If the activation is unknown, or dim does not split into the heads.
    """

    def __init__(
        self,
        layers: Layers,
        dim: int,
        heads: int,
        ffn: int,
        *,
        score: str | None = None,
        rotary: bool = False,
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
        activation: str = "relu",
        bias: bool = True,
        gain: float = 1.0,
        cross: bool = False,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise InputError(f"unknown activation '{activation}': use {', '.join(ACTIVATIONS)}")
        options: dict[str, Any] = {"score": score, "dropout": dropout, "bias": bias, "gain": gain}
        self.attention = layers.attention(dim, heads, rotary=rotary, **options)
        self.cross_attention = layers.attention(dim, heads, cross=True, **options) if cross else None
        self.ffn = nn.Sequential(
            layers.linear(dim, ffn, bias, role="ffn"),
            ACTIVATIONS[activation](),
            nn.Dropout(dropout),
            layers.linear(ffn, dim, bias, role="ffn", gain=gain),
        )
        self.norms = nn.ModuleList(layers.norm(dim, norm, bias) for _ in range(3 if cross else 2))
        self.norm_first, self.dropout = norm_first, nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Apply the block.

        Args:
            x: Features of the tokens, [B, L, dim].
            mask: bool [B, M], False at padding, the cached tokens included; None if there is no padding.
            causal: Whether a token attends only to itself and to tokens before it.
            source: Output of the encoder, [B, S, dim]; needed if there is cross-attention.
            source_mask: bool [B, S], False at padding of the source.
            position_ids: Positions of the tokens, see `zoo.layers.Attention`.
            cache: Keys and values of the tokens before.
        """

        def self_attention(y: Tensor) -> Tensor:
            z: Tensor = self.attention(y, mask=mask, causal=causal, position_ids=position_ids, cache=cache)
            return z

        def cross_attention(y: Tensor) -> Tensor:
            z: Tensor = self.cross_attention(y, source, source_mask, cache=cache)  # type: ignore[misc]
            return z

        parts: list[Callable[[Tensor], Tensor]] = [self_attention]
        parts += [self.ffn] if self.cross_attention is None else [cross_attention, self.ffn]
        for norm, part in zip(self.norms, parts, strict=True):
            x = x + self.dropout(part(norm(x))) if self.norm_first else norm(x + self.dropout(part(x)))
        return x
