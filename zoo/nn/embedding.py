"""Embedding tables over any algebra, pretrained word vectors, and positions."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.algebras import algebra as named
from zoo.errors import InputError, check_choice
from zoo.kernels.internals import is_recording
from zoo.nn.linear import ComputedWeight
from zoo.nn.weight import Weight, shown

PROJECTIONS = ("auto", "none", "linear", "tanh", "relu")  # projections of pretrained vectors; a spec passes none as None


class Embedding(ComputedWeight):
    r"""Embedding table with rows * dim / n weights, equivalent to a `Linear` layer on one-hot vectors.

    Token t = j * ceil(rows / n) + s is the basis element e_j at position s, with the vector w_s e_j: n tokens share the weights
    w_s and differ by a right multiplication. In backbones the table is real unless the scope contains the role ``embed``.

    Args:
        padding_idx: Row that is zero and receives no gradient; negative indices count from the end.

    Attributes:
        components: The parameter w, [m, ceil(dim / n), ceil(rows / n)]; over the reals [rows, dim].
        weight: The real table, [num_embeddings, embedding_dim].
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        algebra: Algebra | str,
        init: str = "variance",
    ) -> None:
        super().__init__()
        # A look-up reads one row, so the fan-in is 1 for unit variance. A one-hot vector has only one nonzero component of n,
        # hence 1 / n.
        algebra = named(algebra)
        n = algebra.n
        fans = 1 / n, embedding_dim / n
        self.weight_module = Weight(algebra, num_embeddings, embedding_dim, transposed=True, init=init, fans=fans)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise InputError(f"padding_idx={padding_idx}: must be from {-num_embeddings} to {num_embeddings - 1}")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self._clear_padding()

    def reset_parameters(self) -> None:
        """Redraw the table."""
        self.weight_module.reset_parameters()
        self._clear_padding()

    def matrix(self) -> Tensor:
        """Return the real table, [num_embeddings, embedding_dim]; over an algebra its padding row is zero."""
        table = super().matrix()
        return table if self.weight_module.is_matrix else _zero_padding(table, self.padding_idx)

    def forward(self, index: Tensor) -> Tensor:
        """Look up: integers [...] to [..., embedding_dim]; IndexError (on a GPU an assertion) for an index out of range."""
        weight = self.weight_module
        if weight.needs_matrix:
            y = F.embedding(index, weight(), self.padding_idx)
            return y if weight.is_matrix else _zero_padding(y, self.padding_idx, index)
        # index_select checks the bounds: invalid indices would otherwise read other rows.
        index = torch.arange(self.num_embeddings, device=index.device).index_select(0, index.flatten()).view(index.shape)
        component = index.div(self.inp.width, rounding_mode="floor")
        with torch.autocast(index.device.type, enabled=False):  # embeddings ignore autocast, as torch's do
            rule = weight.action()[:, component].movedim(0, -2)
            w = weight.elements.permute(2, 0, 1)[index % self.inp.width]
            y = torch.einsum("...ik,...ic->...kc", rule, w).flatten(-2)[..., : self.embedding_dim]
        return _zero_padding(y, self.padding_idx, index)

    def _clear_padding(self) -> None:
        """Set the padding row of a real table to zero; over an algebra other rows share its weights."""
        if self.padding_idx is not None and self.algebra.n == 1:
            with torch.no_grad():
                self.components[self.padding_idx] = 0

    def extra_repr(self) -> str:
        """Show the sizes and the padding index."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}{shown(self.algebra)}"


def _zero_padding(y: Tensor, padding_idx: int | None, index: Tensor | None = None) -> Tensor:
    """Set vectors y, [..., embedding_dim], to zero where the index [...], by default 0, 1, 2, ..., is padding."""
    if padding_idx is None:
        return y
    index = torch.arange(len(y), device=y.device) if index is None else index
    return y * (index != padding_idx).unsqueeze(-1)


class EmbeddingTable(nn.Module):
    """Embedding table: one learned vector per token, or pretrained ones (--vectors) with a projection.

    Pretrained vectors are projected by a layer (Tay et al. 2019, section 3.4) or used directly, and fixed (Zhang et al. 2021,
    App. B.1) unless ``trained``.

    Args:
        vectors: Width of the pretrained vectors for `load_vectors`; None to learn the table.
        projection: ``none``, ``linear``, ``tanh`` or ``relu``; ``auto`` is none if the width equals dim, otherwise tanh.
        trained: Whether pretrained vectors are trained.
        std: Standard deviation of the initial vectors.
    """

    ordered = False

    def __init__(
        self,
        layers: Any,
        *,
        vocab_size: int,
        dim: int,
        vectors: int | None = None,
        projection: str | None = "auto",
        trained: bool = False,
        std: float = 0.1,
    ) -> None:
        super().__init__()
        projection = projection or "none"
        if std <= 0:
            raise InputError(f"std={std}: must be above 0")
        check_choice("projection", projection, PROJECTIONS)
        if projection == "auto":
            projection = "none" if vectors in (None, dim) else "tanh"
        width = dim if vectors is None else vectors
        if projection == "none" and width != dim:
            raise InputError(f"vectors of width {width} with dim={dim}: use projection=linear, tanh or relu, or dim={width}")
        self.table: Any = layers.embedding(vocab_size, width, role="embed", padding_idx=0)
        # Small vectors change quickly in the first steps: on the topics of glosses std=0.1 instead of 1 raised the validation
        # accuracy from 0.90 to 0.93 (lstm) and from 0.89 to 0.93 (transformer).
        with torch.no_grad():
            self.table.components.mul_(std)
        if vectors is not None:
            self.table.requires_grad_(trained)
        nonlinear = {"tanh": nn.Tanh(), "relu": nn.ReLU()}.get(projection, nn.Identity())
        is_projected = projection != "none"
        self.projection = nn.Sequential(layers.linear(width, dim, role="stem"), nonlinear) if is_projected else nn.Identity()

    def load_vectors(self, matrix: Tensor, known: Tensor) -> None:
        """Set the rows ``known`` [V] to pretrained vectors [V, width], and draw the others with the same standard deviation.

        Not supported for a table over an algebra, because its rows share weights.
        """
        if self.table.algebra.n > 1:
            raise InputError(
                "pretrained vectors are not supported with the role embed in --scope: remove it", code="unsupported"
            )
        if not known.any():
            raise InputError("no token of the vocabulary has a pretrained vector")
        spread = matrix[known].square().mean().sqrt()
        with torch.no_grad():
            drawn = torch.randn_like(matrix) * spread
            drawn[0] = 0
            self.table.components.copy_(torch.where(known[:, None], matrix, drawn))

    @property
    def can_be_tied(self) -> bool:
        """Whether the output layer can be tied to the table: there is no projection."""
        return isinstance(self.projection, nn.Identity)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of the tied output layer, [..., dim] to [..., V], zero at padding (Press & Wolf 2017)."""
        table, padding_idx = self.table, self.table.padding_idx
        matrix = table.weight_module() if isinstance(table, Embedding) else table.weight  # folded
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return F.linear(x, _zero_padding(matrix, padding_idx))
        # In generation the logits are much smaller than the table.
        y = F.linear(x, matrix)
        y[..., padding_idx] = 0
        return y

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up and project: [B, L] to [B, L, dim]."""
        return self.projection(self.table(tokens))  # type: ignore[no-any-return]


POSITION_EMBEDDINGS = ("none", "learned", "trigonometric")


class PositionEmbedding(nn.Module):
    """Add position vectors to token vectors; real over every algebra.

    ``none`` adds nothing, ``learned`` a trained ``table``, [max_length, dim] (Gehring et al. 2017), and ``trigonometric`` the
    sines and cosines of `trigonometric`. ``limit`` is the maximum sequence length of a learned table.

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


def rotation(x: Tensor, n: int, position_ids: Tensor | None = None, length: int = 0) -> tuple[Tensor, Tensor]:
    r"""Return cosines and signed sines of rotary positions (Su et al. 2021, Eq. 34), [B or 1, 1, L, 1, c / 2, 2].

    Channels 2 k and 2 k + 1 of a component are rotated by the angle p / 10000^(2 k / c) at position p. All n components of an
    element are rotated by the same angle, so the scores of components depend only on the distance of the tokens.

    Args:
        x: Queries or keys, [B, H, L, n c] with an even c; each head is component-major.
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


def apply_rotation(x: Tensor, n: int, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of channels of queries or keys, [B, H, L, n c], by the result of `rotation`."""
    pairs = x.unflatten(-1, (n, -1, 2))
    return torch.addcmul(pairs * cos, pairs.flip(-1), sin).flatten(-3)


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


class TokenEmbedding(nn.Module):
    """Token vectors plus positions, with dropout; zero at padding.

    The embedding maps tokens [B, L] to vectors [B, L, dim]; if its attribute ``ordered`` is true, it also takes position ids.
    The vectors are multiplied by ``scale`` before positions are added.
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
        return x * (tokens != 0).unsqueeze(-1)  # type: ignore[no-any-return]
