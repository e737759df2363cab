"""From tokens to vectors: the token embedding, and the positions that are added to it."""

import torch
from torch import Tensor, nn

from zoo.errors import InputError

POSITION_EMBEDDINGS = ("none", "learned", "trigonometric")


class PositionEmbedding(nn.Module):
    """Add to the vector of every token one that depends on its position alone; real, whatever the algebra.

    ``none`` adds nothing; ``learned`` a trained ``table``, [max_length, dim] (Gehring et al. 2017), so that ``limit`` is the
    longest text; ``trigonometric`` sines and cosines, see `trigonometric`. Other names and sizes below one are an `InputError`.

    Example:
        >>> PositionEmbedding("trigonometric", 4, 1)(torch.zeros(1, 2, 4))[0, 0]
        tensor([0., 1., 0., 1.])
    """

    def __init__(self, name: str, dim: int, max_length: int, std: float = 0.1) -> None:
        super().__init__()
        if name not in POSITION_EMBEDDINGS:
            raise InputError(f"unknown positions '{name}': use {', '.join(POSITION_EMBEDDINGS)}")
        if dim < 1 or max_length < 1:
            raise InputError(f"positions of dim={dim} and max_length={max_length}: both are one or more")
        self.name, self.dim, self.max_length, self.std = name, dim, max_length, std
        self.table = nn.Parameter(torch.empty(max_length, dim)) if name == "learned" else None
        self.limit = max_length if name == "learned" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the learned table again."""
        if self.table is not None:
            nn.init.normal_(self.table, std=self.std)

    def no_weight_decay(self) -> set[str]:
        """Name the parameters that weight decay must leave alone, by timm's convention: the learned table."""
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
            raise InputError(f"a text of {length} tokens: the learned positions end at max_length={self.max_length}")
        return x + (self.table[:length] if position_ids is None else self.table[position_ids])

    def extra_repr(self) -> str:
        """Show the name and the sizes that matter to it."""
        return f"{self.name}, {self.dim}" + (f", max_length={self.max_length}" if self.limit else "")


class TokenEmbedding(nn.Module):
    """Vectors of tokens plus positions, with dropout; exactly zero at padding.

    The embedding maps tokens [B, L] to vectors [B, L, dim]; if its attribute ``ordered`` is true, it also takes position ids.
    ``scale`` is a factor on the vectors before positions are added.
    """

    def __init__(self, embedding: nn.Module, position_embedding: PositionEmbedding, dropout: float, scale: float = 1.0) -> None:
        super().__init__()
        self.embedding, self.position_embedding = embedding, position_embedding
        self.dropout, self.scale = nn.Dropout(dropout), scale

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Embed tokens [B, L], 0 at padding, with position ids as in `PositionEmbedding.forward`: [B, L, dim]."""
        ordered = position_ids is not None and getattr(self.embedding, "ordered", False)
        x = self.embedding(tokens, position_ids) if ordered else self.embedding(tokens)
        x = self.dropout(self.position_embedding(x * self.scale if self.scale != 1 else x, position_ids))
        y: Tensor = x * (tokens != 0).unsqueeze(-1)
        return y


def length_limit(net: nn.Module) -> int | None:
    """Return the longest text that the learned positions of a network allow; None if it has none."""
    limits = (module.limit for module in net.modules() if isinstance(module, PositionEmbedding))
    return min((limit for limit in limits if limit is not None), default=None)


def trigonometric(position_ids: Tensor, dim: int, like: Tensor) -> Tensor:
    r"""Return the positions of Vaswani et al. (2017, section 3.5): position ids [..., L] to [..., L, dim], in ``like``'s dtype.

        P[p, 2 k] = sin(p / 10000^(2 k / dim))        P[p, 2 k + 1] = cos(p / 10000^(2 k / dim))

    An odd dim ends with a sine.
    """
    angle = angles(position_ids, dim, like)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :dim].to(like.dtype)


def angles(position_ids: Tensor, dim: int, like: Tensor) -> Tensor:
    """Return p / 10000^(2 k / dim), [..., L, ceil(dim / 2)], in float32 or wider: bfloat16 cannot count beyond 256."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    speed = 10000.0 ** (-torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    return position_ids.to(dtype).unsqueeze(-1) * speed
