"""From the words of a text to one vector, without a trace of the padding."""

import torch
from torch import Tensor, nn

from zoo.errors import InputError

KINDS = {"mean": 1, "max": 1, "max+mean": 2, "sum": 1, "first": 1, "last": 1}
"""Ways to pool, and how many vectors each leaves side by side."""


class Pool(nn.Module):
    """Pool vectors over the words of a text: [B, L, C] and a mask [B, L], true at words, to [B, blocks * C].

    Args:
        kind: ``mean``, ``max``, ``max+mean`` (side by side), ``sum``, ``first`` or ``last`` word.

    Raises:
        InputError: If there is no such kind.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        if kind not in KINDS:
            raise InputError(f"unknown pooling '{kind}': use {', '.join(KINDS)}")
        self.kind, self.blocks = kind, KINDS[kind]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Pool: [B, L, C] to [B, blocks * C]."""
        return torch.cat([pool(x, mask, kind) for kind in self.kind.split("+")], -1)

    def extra_repr(self) -> str:
        """Show the kind."""
        return self.kind


def pool(x: Tensor, mask: Tensor, kind: str) -> Tensor:
    """Pool one way: [B, L, C] and mask [B, L] to [B, C]."""
    if kind == "max":
        return x.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(1)
    if kind == "first":
        return x[:, 0]
    if kind == "last":
        return x[torch.arange(len(x), device=x.device), mask.sum(1) - 1]
    total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total if kind == "sum" else total / mask.sum(1, keepdim=True)
