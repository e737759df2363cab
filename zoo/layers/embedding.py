"""The embedding over any algebra: a linear layer that reads one-hot vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.layers.computed_weight import ComputedWeight
from zoo.layers.weight import ComputedMatrix, Weight


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
        if weight.is_matrix or weight.is_reparametrized or weight.has_hooks:
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
