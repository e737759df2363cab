"""Embeddings: tables over any algebra, tables of words and their pretrained vectors, and tokens with their positions."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.errors import InputError, check_choice
from zoo.layers.computed_weight import ComputedWeight
from zoo.layers.positions import PositionEmbedding
from zoo.layers.weight import ComputedMatrix, Weight

PROJECTIONS = ("auto", "none", "linear", "tanh", "relu")
"""In a spec, none stands for Python's None."""


class Embedding(ComputedWeight):
    r"""Look up row t of the matrix of a `Linear` layer that reads one-hot vectors: rows * dim / n weights.

    Word t = j * ceil(rows / n) + s is the basis element e_j in place s, so its vector is w_s e_j: n words share the numbers
    of w_s and differ by a right multiplication. Backbones keep their word tables real (role ``embed``) unless asked.

    Args:
        algebra: The product, of dimension n.
        num_embeddings: Rows.
        embedding_dim: Real channels of a vector.
        padding_idx: A row that is zero and takes no gradient, counted from the end if negative; `InputError` if it is none.
        init: Name of the initialisation, see `zoo.layers.init.draw_components`.

    Attributes:
        components: The parameter w, [m, ceil(dim / n), ceil(rows / n)]; over the reals [rows, dim].
        weight: The real table, [num_embeddings, embedding_dim]; what a tied output layer multiplies by.
    """

    def __init__(
        self,
        algebra: Algebra,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        init: str = "variance",
    ) -> None:
        super().__init__()
        # One row is read at a time, so the fan-in is one and the vectors have unit variance. A one-hot vector meets one of the
        # n components only: n times the energy of one term makes up for the others.
        n = algebra.n if isinstance(algebra, Algebra) else 1
        fans = 1 / n, embedding_dim / n
        self.weight_module = Weight(algebra, num_embeddings, embedding_dim, transposed=True, init=init, fans=fans)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            allowed = f"from {-num_embeddings} to {num_embeddings - 1}"
            raise InputError(f"padding_idx={padding_idx}: must be {allowed}, for {num_embeddings} embeddings")
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self._clear_padding()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        self.weight_module.reset_parameters()
        self._clear_padding()

    @property
    def weight(self) -> Tensor:
        """The real table, [num_embeddings, embedding_dim]."""
        weight = super().weight
        return (
            weight if self.weight_module.is_matrix else _without_padding(weight, self.padding_idx).as_subclass(ComputedMatrix)
        )

    @weight.setter
    def weight(self, table: Tensor) -> None:
        ComputedWeight.weight.__set__(self, table)  # type: ignore[attr-defined]

    @property
    def output_weight(self) -> Tensor:
        """The table as the matrix of a tied output layer: its padding row is zero and takes no gradient."""
        return _without_padding(self.weight_module.matrix(), self.padding_idx)

    def forward(self, index: Tensor) -> Tensor:
        """Look up: integers [...] to [..., embedding_dim]; IndexError (on a GPU an assertion) for a word outside the table."""
        weight = self.weight_module
        if weight.needs_matrix:
            y = F.embedding(index, weight.matrix(), self.padding_idx)
            return y if weight.is_matrix else _without_padding(y, self.padding_idx, index)
        # Torch's own bounds check: a negative word, or one that is padding, would read somebody else's numbers.
        index = torch.arange(self.num_embeddings, device=index.device).index_select(0, index.flatten()).view(index.shape)
        component = index.div(self.inp.width, rounding_mode="floor")
        w = weight.elements.permute(2, 0, 1)[index % self.inp.width]
        rule = weight.action()[:, component].movedim(0, -2)
        with torch.autocast(index.device.type, enabled=False):  # a look-up keeps its dtype, as torch's does
            y = torch.einsum("...ik,...ic->...kc", rule, w).flatten(-2)[..., : self.embedding_dim]
        return _without_padding(y, self.padding_idx, index)

    def _clear_padding(self) -> None:
        """Set the padding row of a real table to zero; over an algebra its numbers belong to other rows too."""
        if self.padding_idx is not None and self.algebra.n == 1:
            with torch.no_grad():
                self.components[self.padding_idx] = 0

    def extra_repr(self) -> str:
        """Show the sizes, as torch does."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


def tied_logits(x: Tensor, table: Embedding | nn.Embedding) -> Tensor:
    """Multiply by a table, as a softmax does that shares it: [..., dim] to [..., V], zero and without gradient at padding."""
    matrix = table.weight_module.matrix() if isinstance(table, Embedding) else table.weight
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return F.linear(x, _without_padding(matrix, table.padding_idx))
    # While a text is generated a row of logits is much smaller than the table.
    y = F.linear(x, matrix)
    if table.padding_idx is not None:
        y[..., table.padding_idx] = 0
    return y


def _without_padding(y: Tensor, padding_idx: int | None, index: Tensor | None = None) -> Tensor:
    """Set the vectors of the padding word to zero: y is [..., embedding_dim], index [...], by default 0, 1, 2, ..."""
    if padding_idx is None:
        return y
    index = torch.arange(len(y), device=y.device) if index is None else index
    return y * (index != padding_idx).unsqueeze(-1)


class EmbeddingTable(nn.Module):
    """Embedding table: one learned vector per token, or pretrained ones (--vectors) with a projection.

    A linear or nonlinear layer projects pretrained vectors (Tay et al. 2019, section 3.4). Without a projection they are the
    table itself, fixed (Zhang et al. 2021, App. B.1) unless ``trained``.

    Args:
        layers: The factory that makes the table.
        vocab_size: Tokens of the vocabulary; 0 is padding.
        dim: Channels of a vector.
        vectors: Width of the pretrained vectors that `load_vectors` will receive; None to learn the table.
        projection: ``none``, ``linear``, ``tanh`` or ``relu``; ``auto`` is none if the width is dim, else tanh.
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
            raise InputError(f"std={std}: the spread of the initial vectors is above zero")
        check_choice("projection", projection, PROJECTIONS)
        if projection == "auto":
            projection = "none" if vectors in (None, dim) else "tanh"
        width = dim if vectors is None else vectors
        if projection == "none" and width != dim:
            advice = f"use projection=linear, tanh or relu, or dim={width}"
            raise InputError(f"vectors of width {width} are no table of dim={dim}: {advice}")
        self.table: Any = layers.embedding(vocab_size, width, role="embed", padding_idx=0)
        # The first steps move small vectors far, so frequent words soon differ by use and not by chance: on the topics
        # of glosses 0.1 instead of 1 raised validation accuracy from 0.90 to 0.93 (lstm) and from 0.89 to 0.93 (transformer).
        with torch.no_grad():
            self.table.components.mul_(std)
        if vectors is not None:
            self.table.requires_grad_(trained)
        nonlinear = {"tanh": nn.Tanh(), "relu": nn.ReLU()}.get(projection, nn.Identity())
        is_projected = projection != "none"
        self.projection = nn.Sequential(layers.linear(width, dim, role="stem"), nonlinear) if is_projected else nn.Identity()

    def load_vectors(self, matrix: Tensor, found: Tensor) -> None:
        """Set the rows ``found`` [V] to pretrained vectors [V, width], and draw the others with the spread of the found ones.

        `InputError` if the table is over an algebra, whose rows share their numbers, or has another size.
        """
        if self.table.algebra.n > 1:
            raise InputError("pretrained vectors need a real word table: leave embed out of --scope")
        if matrix.shape != self.table.weight.shape:
            raise InputError(f"vectors {list(matrix.shape)} do not fit this table, which takes {list(self.table.weight.shape)}")
        if not found.any():
            raise InputError("none of the words has a pretrained vector")
        spread = matrix[found].square().mean().sqrt()
        with torch.no_grad():
            drawn = torch.randn_like(matrix) * spread
            drawn[0] = 0
            self.table.components.copy_(torch.where(found[:, None], matrix, drawn))

    @property
    def can_be_tied(self) -> bool:
        """Whether a softmax can share the table: no projection stands between."""
        return isinstance(self.projection, nn.Identity)

    def logits(self, x: Tensor) -> Tensor:
        """Multiply by the table, [..., dim] to [..., V] (Press & Wolf 2017); see `zoo.layers.embedding.tied_logits`."""
        return tied_logits(x, self.table)

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up and project: [B, L] to [B, L, dim]."""
        y: Tensor = self.projection(self.table(tokens))
        return y


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
