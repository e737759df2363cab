"""Position embeddings and rotary positions."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from zoo.errors import InputError, check_choice
from zoo.kernels.internals import is_recording

POSITION_EMBEDDINGS = ("none", "learned", "trigonometric")


class PositionEmbedding(nn.Module):
    """Add position vectors to token vectors; real over every algebra.

    ``none`` adds nothing, ``learned`` a trained ``table``, [max_length, dim] (Gehring et al. 2017), and ``trigonometric`` sines
    and cosines, see `zoo.layers.positions.trigonometric`. ``limit`` is the maximum sequence length of a learned table.

    Example:
        >>> PositionEmbedding("trigonometric", 4, 1)(torch.zeros(1, 2, 4))[0, 0]
        tensor([0., 1., 0., 1.])
    """

    def __init__(self, name: str, dim: int, max_length: int) -> None:
        super().__init__()
        check_choice("positions", name, POSITION_EMBEDDINGS)
        self.name, self.dim, self.max_length = name, dim, max_length
        self.table = nn.Parameter(torch.empty(max_length, dim)) if name == "learned" else None
        self.limit = max_length if name == "learned" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Redraw the learned table."""
        if self.table is not None:
            nn.init.normal_(self.table, std=0.1)

    def no_weight_decay(self) -> set[str]:
        """Return the parameters without weight decay, by timm's convention: the learned table."""
        return set() if self.table is None else {"table"}

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Add positions: [B, L, dim] to [B, L, dim].

        Position ids are int64 [L] or [B, L], by default 0, 1, ..., L - 1; `InputError` if L exceeds the learned table.
        """
        length = x.shape[-2]
        if self.name == "none":
            return x
        if self.table is None:
            ids = torch.arange(length, device=x.device) if position_ids is None else position_ids
            return x + trigonometric(ids, self.dim, x)
        if length > self.max_length:
            raise InputError(f"sequence length {length} exceeds max_length={self.max_length} of the learned positions")
        return x + (self.table[:length] if position_ids is None else self.table[position_ids])

    def extra_repr(self) -> str:
        """Show the name and the sizes."""
        return f"{self.name}, {self.dim}, max_length={self.limit}"


def length_limit(net: nn.Module) -> int | None:
    """Return the maximum sequence length of the learned positions of a network, or None without learned positions."""
    limits = (module.limit for module in net.modules() if isinstance(module, PositionEmbedding))
    return min((limit for limit in limits if limit is not None), default=None)


def trigonometric(position_ids: Tensor, dim: int, like: Tensor) -> Tensor:
    r"""Encode position ids [..., L] as sines and cosines, [..., L, dim], in the dtype of ``like`` (Vaswani et al. 2017).

        P[p, 2 k] = sin(p / 10000^(2 k / dim))        P[p, 2 k + 1] = cos(p / 10000^(2 k / dim))

    An odd dim ends with a sine.
    """
    angle = angles(position_ids, dim, like)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :dim].to(like.dtype)


def angles(position_ids: Tensor, dim: int, like: Tensor) -> Tensor:
    """Return p / 10000^(2 k / dim), [..., L, ceil(dim / 2)], in float32 or wider: bfloat16 is exact only up to 256."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    speed = 10000.0 ** (-torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    return position_ids.to(dtype).unsqueeze(-1) * speed


def apply_rotation(x: Tensor, n: int, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of channels of queries or keys, [B, H, L, n c], by the result of `rotation`."""
    pairs = x.unflatten(-1, (n, -1, 2))
    return torch.addcmul(pairs * cos, pairs.flip(-1), sin).flatten(-3)


def rotation(x: Tensor, n: int, position_ids: Tensor | None = None, length: int = 0) -> tuple[Tensor, Tensor]:
    r"""Return cosines and signed sines of rotary positions (Su et al. 2021, Eq. 34), [B or 1, 1, L, 1, c / 2, 2].

    Channels 2 k and 2 k + 1 of a component are rotated by the angle p / 10000^(2 k / c) at position p. All n components of an
    element are rotated by the same angle, so the scores of components depend only on the distance of the tokens.

    Args:
        x: Queries or keys, [B, H, L, n c] with an even c; each head is component-major.
        n: Dimension of the algebra.
        position_ids: Positions p, int64 [L] or [B, L]; by default 0, 1, ..., L - 1.
        length: An upper bound of the position ids; if it is given, sines and cosines are cached.
    """
    channels = x.shape[-1] // n
    rows = slice(x.shape[-2]) if position_ids is None else position_ids
    length = x.shape[-2] if position_ids is None else length
    # Tensors of a compiled graph, a recording or a tensor subclass must not be cached.
    if torch.compiler.is_compiling() or is_recording(x) or type(x) is not Tensor or not length:
        ids = torch.arange(x.shape[-2], device=x.device) if position_ids is None else position_ids
        cos, sin = _rotations(ids, channels, x)
    else:
        tables = _cached_rotations(max(64, 1 << (length - 1).bit_length()), channels, x.dtype, x.device)
        cos, sin = (table[rows] for table in tables)
    # [L, c / 2, 2] or [B, L, c / 2, 2] to [B, H, L, n, c / 2, 2]
    cos, sin = ((t if t.ndim == 4 else t[None])[:, None, :, None] for t in (cos, sin))
    return cos, sin


def _rotations(position_ids: Tensor, channels: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return (cos, cos) and (-sin, sin) of every angle, [..., c / 2, 2]."""
    angle = angles(position_ids, channels, like)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos, cos], -1).to(like.dtype), torch.stack([-sin, sin], -1).to(like.dtype)


@lru_cache(maxsize=8)
def _cached_rotations(length: int, channels: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and signed sines of the positions 0, 1, ..., length - 1."""
    with torch.inference_mode(False):  # inference tensors cannot be used in training
        return _rotations(torch.arange(length, device=device), channels, torch.empty(0, dtype=dtype, device=device))
