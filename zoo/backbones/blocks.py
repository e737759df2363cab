"""The block of every Transformer: attention and a feed-forward part, each with a norm and a residual."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from zoo.errors import InputError
from zoo.layers import Layers
from zoo.layers.kv_cache import KVCache

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


class Block(nn.Module):
    """Self-attention, attention to a source if there is one, and two layers, each with a residual: [B, L, dim] to the same.

    Args:
        layers: The factory that knows the algebra.
        dim: Channels.
        heads: Attention heads.
        ffn: Channels between the two layers.
        score: How attention compares words, see `zoo.layers.Attention`.
        rotary: Whether self-attention turns queries and keys by their position.
        norm: Kind of norm, see `zoo.layers.norm.norm`.
        norm_first: Whether a norm stands before each part (as in Tensor2Tensor) or after its residual (Vaswani et al. 2017).
        dropout: Probability in attention, between the two layers, and before each residual.
        activation: ``relu`` or ``gelu``, between the two layers.
        bias: Whether matrices and layer norms have biases.
        gain: Factor on the initial spread of what is added to the residual stream.
        cross: Whether it attends to a source.
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
        self.cross = layers.attention(dim, heads, cross=True, **options) if cross else None
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
            x: Tokens, [B, L, dim].
            mask: bool [B, M], True at real words, those of the cache included; None if all are.
            causal: Whether no word sees those behind it.
            source: What the encoder made of the source, [B, S, dim].
            source_mask: bool [B, S], True at its words.
            position_ids: Where the words stand, see `zoo.layers.Attention`.
            cache: What was read before.
        """

        def attend(y: Tensor) -> Tensor:
            z: Tensor = self.attention(y, mask=mask, causal=causal, position_ids=position_ids, cache=cache)
            return z

        def look(y: Tensor) -> Tensor:
            z: Tensor = self.cross(y, source, source_mask, cache=cache)  # type: ignore[misc]
            return z

        parts: list[Callable[[Tensor], Tensor]] = [attend, *([look] if self.cross is not None else []), self.ffn]
        for norm, part in zip(self.norms, parts, strict=True):
            x = x + self.dropout(part(norm(x))) if self.norm_first else norm(x + self.dropout(part(x)))
        return x
