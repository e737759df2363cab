"""The cache of a network that decodes: keys and values of the tokens before."""

import torch
from torch import Tensor, nn


class KVCache:
    """Keep keys and values of every attention layer, so that no token is read twice; at most ``limit`` tokens, or all.

    ``source``, [B, S, C], is the output of an encoder, and ``source_mask``, bool [B, S], is False at its padding.

    Attributes:
        length: Tokens read so far, padding included.
        mask: bool [B, keys], False at padding on the left, for the keys of the next attention; None if there is no padding.
    """

    def __init__(self, source: Tensor | None = None, source_mask: Tensor | None = None, limit: int | None = None) -> None:
        self.source, self.source_mask, self.limit = source, source_mask, limit
        self.length = 0
        self.mask: Tensor | None = None
        self._kept: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._padding: Tensor | None = None

    def advance(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Count more tokens [B, l] and return their position ids, [l], or [B, l] if there is padding.

        The mask of the new tokens is bool [B, l], False at padding on the left; None if there is none.
        """
        rows, new = tokens.shape
        start, self.length = self.length, self.length + new
        position_ids = torch.arange(start, self.length, device=tokens.device)
        if mask is None and self.mask is None:
            return position_ids
        before = tokens.new_ones(rows, start, dtype=torch.bool) if self.mask is None else self.mask
        now = tokens.new_ones(rows, new, dtype=torch.bool) if mask is None else mask
        self.mask = torch.cat([self._recent(before, 1), now], 1)
        self._padding = (0 if self._padding is None else self._padding) + (~now).sum(1, keepdim=True)
        return (position_ids - self._padding).clamp(min=0)

    def append(self, layer: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of a layer, and return all of them, [B, H, M, c], the new ones last."""
        if layer in self._kept:
            before = (self._recent(part, 2) for part in self._kept[layer])
            keys, values = (torch.cat(pair, 2) for pair in zip(before, (keys, values), strict=True))
        self._kept[layer] = keys, values
        return keys, values

    def get(self, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        """Return the keys and values of a layer, or None."""
        return self._kept.get(layer)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, int64 [R], in this order; a row may be named more than once."""
        self._kept = {layer: (k.index_select(0, rows), v.index_select(0, rows)) for layer, (k, v) in self._kept.items()}
        for name in ("source", "source_mask", "mask", "_padding"):
            if (part := getattr(self, name)) is not None:
                setattr(self, name, part.index_select(0, rows))

    def _recent(self, part: Tensor, axis: int) -> Tensor:
        """Drop tokens beyond the limit, the oldest first."""
        if self.limit is None or part.shape[axis] <= self.limit:
            return part
        return part.narrow(axis, part.shape[axis] - self.limit, self.limit)
