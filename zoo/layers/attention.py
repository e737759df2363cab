"""Multi-head attention over any algebra, and rotary positions."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.kernels.internals import is_recording
from zoo.layers.kv_cache import KVCache
from zoo.layers.linear import Linear
from zoo.layers.scores import SCORES, arrange, attend_arranged
from zoo.layers.token_embedding import angles


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017) whose projections, and optionally its scores, are products over an algebra.

    Queries, keys, values and heads are made of whole elements: every head is component-major by itself.

    Args:
        algebra: The product, of dimension n.
        dim: Real channels.
        heads: Heads.
        head_dim: Real channels of a head, whole elements; by default dim / heads.
        score: ``dot``, ``product`` or ``hermitian``, see `zoo.layers.scores.attend`.
        dropout: Probability to drop an attention weight in training.
        bias: Whether the projections have biases.
        rotary: Whether queries and keys are rotated by their positions, see `rotate`; a head has a multiple of 2 * n
            channels then.
        cross: Whether keys and values come from a second sequence: projections ``q`` and ``kv`` in place of ``qkv``.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.
        gain: Factor on the initial standard deviation of the output projection.

    Raises:
        InputError: If a head is not of whole elements, or an option is unknown or does not fit.

    Example:
        >>> Attention(Algebra(torch.ones(2, 2, 2)), 8, heads=2)(torch.ones(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        algebra: Algebra,
        dim: int,
        heads: int,
        *,
        head_dim: int | None = None,
        score: str = "dot",
        dropout: float = 0.0,
        bias: bool = True,
        rotary: bool = False,
        cross: bool = False,
        init: str = "variance",
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        if score not in SCORES:
            raise InputError(f"unknown score '{score}': use {', '.join(SCORES)}")
        if not 0 <= dropout < 1:
            raise InputError(f"dropout={dropout}: the share of dropped weights is at least 0 and less than 1")
        if rotary and cross:
            raise InputError("rotary positions measure distances in one text: use them in self attention only")
        check_heads(dim, heads, algebra.n, rotary, head_dim=head_dim)
        self.dim, self.heads, self.n, self.score = dim, heads, algebra.n, score
        self.head_dim = dim // heads if head_dim is None else head_dim
        inner = self.head_dim * heads
        self.dropout, self.rotary, self.cross = dropout, rotary, cross
        self.product = None if score == "dot" else algebra.for_layer()
        if cross:
            self.q = Linear(algebra, dim, inner, bias, blocks=(1, heads), init=init)
            self.kv = Linear(algebra, dim, 2 * inner, bias, blocks=(1, 2 * heads), init=init)
        else:
            self.qkv = Linear(algebra, dim, 3 * inner, bias, blocks=(1, 3 * heads), init=init)
        self.proj = Linear(algebra, inner, dim, bias, blocks=(heads, 1), init=init, gain=gain)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        *,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend: [B, L, dim] to [B, L, dim].

        Args:
            x: Source of the queries; in self-attention also of keys and values.
            context: Source of keys and values in cross-attention, [B, M, dim].
            mask: bool [B, M], False at padding; with a cache M counts the cached keys and those of x.
            causal: Whether a token attends only to itself and to tokens before it.
            position_ids: Positions of the tokens of x for rotary positions, int64 [L] or [B, L], by default 0, 1, ..., L - 1;
                with a cache those that `KVCache.advance` returned.
            cache: Keys and values of the tokens before, to which those of x are added. Cross-attention projects its context
                only once.
        """
        if self.cross != (context is not None):
            raise InputError(
                "cross attention reads x and context" if self.cross else "self attention reads x alone: pass cross=True"
            )
        structure = None if self.product is None else self.product.table(x)
        if context is None:
            q, k, v = self._split(self.qkv(x), position_ids, cache)
            k = arrange(k, structure, self.score)
            if cache is not None:
                k, v = cache.append(self, k, v)
        else:
            (q,) = self._split(self.q(x))
            kept = None if cache is None else cache.get(self)
            if kept is None:
                k, v = self._split(self.kv(context))
                kept = arrange(k, structure, self.score), v
                if cache is not None:
                    cache.append(self, *kept)
            k, v = kept
        y = attend_arranged(q, k, v, self.score, mask, causal, self.dropout if self.training else 0.0)
        out: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return out

    def _split(self, y: Tensor, position_ids: Tensor | None = None, cache: KVCache | None = None) -> tuple[Tensor, ...]:
        """Split what lies side by side: [B, L, k H c] to k tensors [B, H, L, c]; rotate all but the last by their positions."""
        if not self.rotary:
            return tuple(t.transpose(1, 2) for t in y.unflatten(-1, (-1, self.heads, self.head_dim)).unbind(2))
        heads = y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        both, v = heads.split([2 * self.heads, self.heads], 1)
        length = 0 if cache is None else cache.length

        def turn() -> tuple[Tensor, Tensor]:
            return rotation(both, self.n, position_ids, length)

        key = "rotation", self.n, self.head_dim, y.dtype
        angles = turn() if cache is None or position_ids is None else cache.once(key, position_ids, turn)
        return *rotated(both, self.n, *angles).chunk(2, 1), v

    def extra_repr(self) -> str:
        """Show the sizes, and what is not the default."""
        shown = {"score": "dot", "dropout": 0.0, "rotary": False, "cross": False}
        changed = [f"{name}={getattr(self, name)}" for name, default in shown.items() if getattr(self, name) != default]
        return ", ".join([f"{self.dim}, heads={self.heads}", *changed])


def check_heads(dim: int, heads: int, n: int, rotary: bool = False, backbone: str = "", head_dim: int | None = None) -> None:
    """Refuse a dim that is no multiple of heads * n, or, if ``rotary``, of twice that, and propose one for ``backbone``.

    With a ``head_dim`` of their own it is that of the heads which must be whole elements, and any dim is right.

    Example:
        >>> check_heads(64, 4, 5, backbone="vit")
        Traceback (most recent call last):
        zoo.errors.InputError: dim=64 does not split into heads=4 of whole elements of an algebra with n = 5: write vit(dim=80)
    """
    if heads < 1:
        raise InputError(f"heads={heads}: attention has at least one head")
    unit = n * (1 + rotary)
    if head_dim is not None:
        if head_dim < 1 or head_dim % unit:
            whole = (
                f"no whole number of elements of an algebra with n = {n}" if head_dim % n else "no pairs of channels to rotate"
            )
            raise InputError(f"head_dim={head_dim} is {whole}: use head_dim={max(1, -(-head_dim // unit)) * unit}")
        dim = unit * heads
    unit *= heads
    if dim < 1 or dim % unit:
        whole = f" of whole elements of an algebra with n = {n}" if n > 1 else ""
        even = " and of pairs of channels to rotate" if rotary else ""
        fitting = f"dim={max(1, -(-dim // unit)) * unit}"
        proposal = f"write {backbone}({fitting})" if backbone else f"use {fitting}"
        raise InputError(f"dim={dim} does not split into heads={heads}{whole}{even}: {proposal}")


def rotate(x: Tensor, n: int, position_ids: Tensor | None = None, length: int = 0) -> Tensor:
    r"""Rotate queries or keys by their positions (rotary positions, Su et al. 2021, Eq. 34): [B, H, L, n * c] to the same.

    Channels 2 k and 2 k + 1 of a component are rotated by the angle p / 10000^(2 k / c) at position p. All n components of an
    element are rotated alike, so that every score between two components depends only on the distance of the tokens.

    Args:
        x: Heads, each component-major.
        n: Dimension of the algebra.
        position_ids: p of every token, int64 [L] or [B, L]; by default 0, 1, ..., L - 1.
        length: A bound that all position ids are below, if one is known; sines and cosines are then computed only once.

    Raises:
        InputError: If a component of a head has an odd number of channels.
    """
    return rotated(x, n, *rotation(x, n, position_ids, length))


def rotated(x: Tensor, n: int, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of channels by what `rotation` returned."""
    pairs = x.unflatten(-1, (n, -1, 2))
    return torch.addcmul(pairs * cos, pairs.flip(-1), sin).flatten(-3)


def rotation(x: Tensor, n: int, position_ids: Tensor | None, length: int) -> tuple[Tensor, Tensor]:
    """Return factors of the channels and of their partners in a pair, for `rotate`'s arguments: [B or 1, 1, L, 1, c / 2, 2]."""
    channels = x.shape[-1] // n
    if x.shape[-1] % n or channels % 2:
        raise InputError(f"rotary positions rotate pairs of channels: a head of {x.shape[-1]} must be a multiple of {2 * n}")
    rows = slice(x.shape[-2]) if position_ids is None else position_ids
    length = x.shape[-2] if position_ids is None else length
    # Nothing is kept that belongs to a graph, a recording or a fake tensor.
    if torch.compiler.is_compiling() or is_recording(x) or type(x) is not Tensor or not length:
        ids = torch.arange(x.shape[-2], device=x.device) if position_ids is None else position_ids
        cos, sin = _rotations(ids, channels, x)
    else:
        kept = _kept_rotations(max(64, 1 << (length - 1).bit_length()), channels, x.dtype, x.device)
        cos, sin = (table[rows] for table in kept)
    # From [L, c / 2, 2] or [B, L, c / 2, 2] to the axes of [B, H, L, n, c / 2, 2].
    cos, sin = ((t if t.ndim == 4 else t[None])[:, None, :, None] for t in (cos, sin))
    return cos, sin


def _rotations(position_ids: Tensor, channels: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return (cos, cos) and (-sin, sin) of every angle, [..., c / 2, 2]."""
    angle = angles(position_ids, channels, like)
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos, cos], -1).to(like.dtype), torch.stack([-sin, sin], -1).to(like.dtype)


@lru_cache(maxsize=8)
def _kept_rotations(length: int, channels: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the positions 0, 1, ..., length - 1, one table for all layers of the same sizes."""
    with torch.inference_mode(False):  # what is made in inference mode could not be used in training later
        return _rotations(torch.arange(length, device=device), channels, torch.empty(0, dtype=dtype, device=device))
