"""The product of two feature vectors, over any algebra."""

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.errors import InputError


class Product(nn.Module):
    """Multiply two feature vectors element by element, x y; over the reals that is the entrywise product.

    What Quaternion attention compares aligned words with (Tay et al. 2019, section 3.2). A size that n does not divide is
    padded inside with zeros, and the product is cut to it.

    Args:
        algebra: The product, of dimension n; the layer has a rule of its own if rules are learned.
        dim: Real channels of either vector, component-major.

    Raises:
        InputError: If there is no channel.

    Example:
        >>> import torch
        >>> Product(Algebra(torch.ones(1, 1, 1)), 2)(torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]))
        tensor([10., 21.])
    """

    def __init__(self, algebra: Algebra, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise InputError(f"dim={dim}: a product needs one channel or more")
        self.algebra, self.dim = algebra.for_layer(), dim

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply: [..., dim] and [..., dim] to [..., dim].

        Raises:
            InputError: If either has another number of channels.
        """
        for t in (x, y):
            if t.shape[-1] != self.dim:
                raise InputError(f"shape {list(t.shape)}: the vectors of this product have {self.dim} channels")
        padding = -self.dim % self.algebra.n
        if padding:
            x, y = F.pad(x, (0, padding)), F.pad(y, (0, padding))
        product: Tensor = self.algebra(x, y)
        return product[..., : self.dim]

    def extra_repr(self) -> str:
        """Show the size."""
        return str(self.dim)
