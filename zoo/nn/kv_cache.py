"""The key-value cache of autoregressive decoding."""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Rows(NamedTuple):
    """Rows ``start`` to ``end`` along axis -2 of a buffer, which may have spare capacity."""

    buffer: Tensor
    start: int
    end: int

    @property
    def view(self) -> Tensor:
        """The rows."""
        return self.buffer.narrow(-2, self.start, self.end - self.start)

    def append(self, new: Tensor, limit: int | None = None) -> "Rows":
        """Truncate the rows to the last ``limit`` and append new ones, in place if the capacity suffices."""
        start = self.start if limit is None else max(self.start, self.end - limit)
        old, count = self._replace(start=start).view, new.shape[-2]
        if torch.is_grad_enabled() or self.buffer.is_inference() != torch.is_inference_mode_enabled():
            return Rows(torch.cat([old, new], -2), 0, self.end - start + count)
        buffer, end = self.buffer, self.end
        if end + count > buffer.shape[-2]:
            # Doubling the capacity copies each row once on average.
            end = old.shape[-2]
            buffer = new.new_empty(*new.shape[:-2], max(64, 2 * (end + count)), new.shape[-1])
            buffer.narrow(-2, 0, end).copy_(old)
            start = 0
        buffer.narrow(-2, end, count).copy_(new)
        return Rows(buffer, start, end + count)


class KVCache:
    """Cache the keys and values of every attention layer, so that each token is processed once.

    Args:
        source: Output of the encoder, [B, S, C].
        source_mask: bool [B, S], False at padding.
        limit: Maximum number of previous tokens; None for all.

    Attributes:
        length: Number of tokens so far, including padding.
        mask: bool [B, keys], False at left padding, for the next attention; None without padding.
    """

    def __init__(self, source: Tensor | None = None, source_mask: Tensor | None = None, limit: int | None = None) -> None:
        self.source, self.source_mask, self.limit = source, source_mask, limit
        self.length = 0
        self.mask: Tensor | None = None
        self._keys_values: dict[nn.Module, tuple[Rows, Rows]] = {}
        self._tables: dict[Hashable, Tensor] = {}
        self._step: dict[Hashable, tuple[Tensor, tuple[Tensor, Tensor]]] = {}
        self._padding: Tensor | None = None

    def advance(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Add tokens [B, l] and return their position ids, [l], or [B, l] with padding.

        The mask of the new tokens is bool [B, l], False at left padding; None without padding.
        """
        rows, new = tokens.shape
        start, self.length = self.length, self.length + new
        position_ids = torch.arange(start, self.length, device=tokens.device)
        if mask is None and self.mask is None:
            return position_ids
        old_mask = tokens.new_ones(rows, start, dtype=torch.bool) if self.mask is None else self.mask
        if self.limit is not None:
            old_mask = old_mask[:, max(0, old_mask.shape[1] - self.limit) :]
        new_mask = tokens.new_ones(rows, new, dtype=torch.bool) if mask is None else mask
        self.mask = torch.cat([old_mask, new_mask], 1)
        self._padding = (0 if self._padding is None else self._padding) + (~new_mask).sum(1, keepdim=True)
        return (position_ids - self._padding).clamp(min=0)

    def append(self, layer: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of a layer, and return all of them, [..., M, c]."""
        if layer in self._keys_values:
            rows = [old.append(new, self.limit) for old, new in zip(self._keys_values[layer], (keys, values), strict=True)]
        else:
            rows = [Rows(part, 0, part.shape[-2]) for part in (keys, values)]
        self._keys_values[layer] = rows[0], rows[1]
        return rows[0].view, rows[1].view

    def get(self, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        """Return the keys and values of a layer, or None."""
        cached = self._keys_values.get(layer)
        return None if cached is None else (cached[0].view, cached[1].view)

    def table(self, key: Hashable, length: int, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the first rows of a growing table, [length, ...], computing each row once.

        ``make`` maps row numbers, int64 [l], to rows.
        """
        table = self._tables.get(key)
        size = 0 if table is None else len(table)
        if size < length:
            new = make(torch.arange(size, max(64, 1 << (length - 1).bit_length())))
            table = new if table is None else torch.cat([table, new])
            if not torch.is_grad_enabled():  # the autograd graph of the new rows must not outlive the step
                self._tables[key] = table
        return table[:length]  # type: ignore[index]

    def once(self, key: Hashable, position_ids: Tensor, make: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return two functions of the position ids of a step, computed once for all layers."""
        cached = self._step.get(key)
        if cached is None or cached[0] is not position_ids:
            self._step[key] = cached = position_ids, make()
        return cached[1]

    def select(self, rows: Tensor) -> None:
        """Select batch rows, int64 [R], in this order; rows may be repeated."""
        for layer, cached in self._keys_values.items():
            keys, values = (part._replace(buffer=part.buffer.index_select(0, rows)) for part in cached)
            self._keys_values[layer] = keys, values
        for name in ("source", "source_mask", "mask", "_padding"):
            if (tensor := getattr(self, name)) is not None:
                setattr(self, name, tensor.index_select(0, rows))
