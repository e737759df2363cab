"""The cache of a network that decodes: keys and values of the tokens before, and tables that each step goes on with."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class Rows(NamedTuple):
    """Rows ``start`` to ``end`` along the axis before the last of a buffer, which may have room for more."""

    buffer: Tensor
    start: int
    end: int

    @property
    def view(self) -> Tensor:
        """The rows."""
        return self.buffer.narrow(-2, self.start, self.end - self.start)

    def extended(self, new: Tensor, limit: int | None = None) -> "Rows":
        """Append rows, after dropping all but the last ``limit`` of those before; in place where there is room."""
        start = self.start if limit is None else max(self.start, self.end - limit)
        old, count = self._replace(start=start).view, new.shape[-2]
        if torch.is_grad_enabled() or self.buffer.is_inference() != torch.is_inference_mode_enabled():
            return all_rows(torch.cat([old, new], -2))
        buffer, end = self.buffer, self.end
        if end + count > buffer.shape[-2]:
            # Twice the room, so that a row is copied once on average.
            end = old.shape[-2]
            buffer = new.new_empty(*new.shape[:-2], max(64, 2 * (end + count)), new.shape[-1])
            buffer.narrow(-2, 0, end).copy_(old)
            start = 0
        buffer.narrow(-2, end, count).copy_(new)
        return Rows(buffer, start, end + count)


def all_rows(part: Tensor) -> Rows:
    """Return all rows of a tensor."""
    return Rows(part, 0, part.shape[-2])


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
        self._kept: dict[nn.Module, tuple[Rows, Rows]] = {}
        self._tables: dict[Hashable, Tensor] = {}
        self._step: dict[Hashable, tuple[Tensor, Any]] = {}
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
        self.mask = torch.cat([self._recent(before), now], 1)
        self._padding = (0 if self._padding is None else self._padding) + (~now).sum(1, keepdim=True)
        return (position_ids - self._padding).clamp(min=0)

    def append(self, layer: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of a layer, and return all of them, [..., M, c], the new ones last."""
        kept = self._kept.get(layer)
        if kept is None:
            self._kept[layer] = all_rows(keys), all_rows(values)
        else:
            self._kept[layer] = kept[0].extended(keys, self.limit), kept[1].extended(values, self.limit)
        return self.get(layer)  # type: ignore[return-value]

    def get(self, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        """Return the keys and values of a layer, or None."""
        kept = self._kept.get(layer)
        return None if kept is None else (kept[0].view, kept[1].view)

    def table(self, key: Hashable, length: int, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the first rows of a table that grows with the text, [length, ...], each of them computed once.

        ``make`` maps numbers of rows, int64 [l] on the device of the table, to the rows.
        """
        kept = self._tables.get(key)
        have = 0 if kept is None else len(kept)
        if have < length:
            new = make(torch.arange(have, max(64, 1 << (length - 1).bit_length())))
            if torch.is_grad_enabled():  # its history belongs to this step
                return new[:length] if kept is None else torch.cat([kept, new])[:length]
            self._tables[key] = kept = new if kept is None else torch.cat([kept, new])
        return kept[:length]  # type: ignore[index]

    def once(self, key: Hashable, position_ids: Tensor, make: Callable[[], T]) -> T:
        """Return what all layers compute alike from the position ids of a step, computed by the first of them."""
        kept = self._step.get(key)
        if kept is None or kept[0] is not position_ids:
            self._step[key] = kept = position_ids, make()
        value: T = kept[1]
        return value

    def select(self, rows: Tensor) -> None:
        """Keep these rows, int64 [R], in this order; a row may be named more than once."""
        for layer, kept in self._kept.items():
            keys, values = (part._replace(buffer=part.buffer.index_select(0, rows)) for part in kept)
            self._kept[layer] = keys, values
        for name in ("source", "source_mask", "mask", "_padding"):
            if (part := getattr(self, name)) is not None:
                setattr(self, name, part.index_select(0, rows))

    def _recent(self, mask: Tensor) -> Tensor:
        """Drop tokens beyond the limit, the oldest first."""
        return mask if self.limit is None else mask[:, max(0, mask.shape[1] - self.limit) :]
