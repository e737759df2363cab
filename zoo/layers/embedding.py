"""The embedding over any algebra: a linear layer that reads one-hot vectors."""

import torch
from torch import Tensor, nn

from zoo.algebras import Algebra
from zoo.errors import InputError
from zoo.kernels import real_matrix
from zoo.kernels.layout import layout
from zoo.layers.init import draw_components


class Embedding(nn.Module):
    r"""Look up row t of the matrix of a `Linear` layer that reads one-hot vectors: rows * dim / n weights.

    Word t = j * ceil(rows / n) + s is the basis element e_j in place s, so its vector is w_s e_j: n words share the numbers
    of w_s and differ by a right multiplication. Backbones keep their word tables real (role ``embed``) unless asked.

    Args:
        algebra: The product, of dimension n.
        num_embeddings: Rows.
        embedding_dim: Real channels of a vector.
        padding_idx: A row that is zero and takes no gradient; counted from the end if negative, as in torch.

    Attributes:
        components: w, [n, ceil(dim / n), ceil(rows / n)], the parameter.
        weight: The real table, [num_embeddings, embedding_dim], computed; what a tied output layer multiplies by.

    Raises:
        InputError: There is no row of the number ``padding_idx``.
    """

    components: nn.Parameter

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
        self.algebra = algebra.for_layer()
        self.num_embeddings, self.embedding_dim, self.init = num_embeddings, embedding_dim, init
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.rows, self.out = layout(num_embeddings, algebra.n), layout(embedding_dim, algebra.n)
        self.components = nn.Parameter(torch.empty(algebra.m, self.out.width, self.rows.width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew. One row is read at a time, so the fan-in is one and the vectors have unit variance."""
        n = self.algebra.n
        # A one-hot vector meets one of the n components only: n times the energy of one term makes up for the others.
        fans = 1 / n, self.embedding_dim / n
        draw_components(self.components, self.algebra.action, *fans, init=self.init)

    @property
    def weight(self) -> Tensor:
        """The real table, [num_embeddings, embedding_dim], what `forward` looks up."""
        table = real_matrix(self.algebra.action, self.components, self.out, self.rows).T
        return self._without_padding(table, torch.arange(self.num_embeddings, device=table.device))

    def forward(self, index: Tensor) -> Tensor:
        """Look up: integers [...] to [..., embedding_dim]; IndexError (on a GPU an assertion) for a word outside the table."""
        # Torch's own bounds check: a negative word, or one that is padding, would read somebody else's numbers.
        index = torch.arange(self.num_embeddings, device=index.device).index_select(0, index.flatten()).view(index.shape)
        component = index.div(self.rows.width, rounding_mode="floor")
        w = self.components.permute(2, 0, 1)[index % self.rows.width]
        rule = self.algebra.action[:, component].movedim(0, -2)
        y = torch.einsum("...ik,...ic->...kc", rule, w).flatten(-2)[..., : self.embedding_dim]
        return self._without_padding(y, index)

    def _without_padding(self, y: Tensor, index: Tensor) -> Tensor:
        """Set the vectors of the padding word to zero: y is [..., embedding_dim], index [...]."""
        return y if self.padding_idx is None else y * (index != self.padding_idx).unsqueeze(-1)

    def extra_repr(self) -> str:
        """Show the sizes, as torch does."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


def _row(padding_idx: int | None, rows: int) -> int | None:
    """Count a row from the start."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise InputError(f"padding_idx={padding_idx}: must be from {-rows} to {rows - 1}, for {rows} embeddings")
    return padding_idx % rows
