"""Where a word stands: positions added to features, and rotary positions of attention heads."""

import torch
from torch import Tensor, nn

from zoo.errors import InputError

KINDS = ("none", "learned", "trigonometric")


class PositionEmbedding(nn.Module):
    """Add to every word a vector that depends on its place alone.

    ``none`` adds nothing; ``learned`` a trained table (Gehring et al. 2017); ``trigonometric`` sines and cosines, see
    `trigonometric`, of any length and without weights. All are real, whatever the algebra.

    Args:
        kind: One of ``none``, ``learned``, ``trigonometric``.
        dim: Real channels.
        max_length: Rows of the learned table; the other kinds take any length.
        std: Standard deviation of the initial learned table; by default that of `zoo.layers.table.EmbeddingTable`.

    Attributes:
        table: The learned table, [max_length, dim], or None.

    Raises:
        InputError: If there is no such kind, or a size is less than one.

    Example:
        >>> PositionEmbedding("trigonometric", 4, 1)(torch.zeros(1, 2, 4))[0, 0]
        tensor([0., 1., 0., 1.])
    """

    def __init__(self, kind: str, dim: int, max_length: int, std: float = 0.1) -> None:
        super().__init__()
        if kind not in KINDS:
            raise InputError(f"unknown positions '{kind}': use {', '.join(KINDS)}")
        if dim < 1 or max_length < 1:
            raise InputError(f"positions of dim={dim} and max_length={max_length}: both are one or more")
        self.kind, self.dim, self.max_length, self.std = kind, dim, max_length, std
        self.table = nn.Parameter(torch.empty(max_length, dim)) if kind == "learned" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the learned table anew."""
        if self.table is not None:
            nn.init.normal_(self.table, std=self.std)

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Add positions: [B, L, dim] to [B, L, dim].

        Args:
            x: Features.
            position_ids: Where the words stand, int64 [L] or [B, L]; by default 0, 1, ..., L - 1.

        Raises:
            InputError: If the text is longer than the learned table.
        """
        length = x.shape[-2]
        if self.kind == "none":
            return x
        if self.table is None:
            return x + trigonometric(first(length, x) if position_ids is None else position_ids, self.dim, x)
        if length > self.max_length:
            raise InputError(f"a text of {length} tokens: the learned positions end at max_length={self.max_length}")
        return x + (self.table[:length] if position_ids is None else self.table[position_ids])

    def extra_repr(self) -> str:
        """Show the kind and the sizes that matter to it."""
        return f"{self.kind}, {self.dim}" + (f", max_length={self.max_length}" if self.kind == "learned" else "")


def first(length: int, like: Tensor) -> Tensor:
    """Return the places 0, 1, ..., length - 1, on the device of ``like``."""
    return torch.arange(length, device=like.device)


def trigonometric(position_ids: Tensor, dim: int, like: Tensor) -> Tensor:
    r"""Return the positions of Vaswani et al. (2017, section 3.5), [..., L, dim] for places [..., L], in the dtype of ``like``.

        P[p, 2 k] = sin(p / 10000^(2 k / dim))        P[p, 2 k + 1] = cos(p / 10000^(2 k / dim))

    An odd dim ends with a sine.
    """
    angle = _angles(position_ids, dim, like)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :dim].to(like.dtype)


def rotate(x: Tensor, n: int, position_ids: Tensor | None = None) -> Tensor:
    r"""Turn queries or keys by their position (rotary positions, Su et al. 2021, Eq. 34): [B, H, L, n * c] to the same.

    Channels 2 k and 2 k + 1 of a component are turned by the angle p / 10000^(2 k / c) at position p. All n components of an
    element are turned alike, so that every score between two components depends on the distance of the words alone.

    Args:
        x: Heads, component-major inside a head.
        n: Dimension of the algebra.
        position_ids: p of every word, int64 [L] or [B, L]; by default 0, 1, ..., L - 1.

    Raises:
        InputError: If a component of a head has an odd number of channels.
    """
    channels = x.shape[-1] // n
    if x.shape[-1] % n or channels % 2:
        raise InputError(f"rotary positions turn pairs of channels: a head of {x.shape[-1]} must be a multiple of {2 * n}")
    # From [L, c / 2] or [B, L, c / 2] to the axes of [B, H, L, n, c / 2].
    angle = _angles(first(x.shape[-2], x) if position_ids is None else position_ids, channels, x).unsqueeze(-2)
    angle = angle.unsqueeze(1) if angle.ndim == 4 else angle
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.unflatten(-1, (n, -1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-3)


def _angles(position_ids: Tensor, dim: int, like: Tensor) -> Tensor:
    """Return p / 10000^(2 k / dim), [..., L, ceil(dim / 2)]; at least float32, for bfloat16 knows no place after 256."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    speed = 10000.0 ** (-torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    return position_ids.to(dtype).unsqueeze(-1) * speed
