"""Layers on algebra elements: their product, a norm that keeps them whole, and the step back to real features."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.errors import InputError, check_choice

READOUTS = ("channels", "modulus", "scalar")


class Product(nn.Module):
    """Multiply two feature vectors element by element, x y; over the reals that is the entrywise product.

    Quaternion attention compares aligned words with it (Tay et al. 2019, section 3.2). ``dim`` are the real channels of either
    vector, component-major; if n does not divide them they are padded inside with zeros, and the result is sliced.

    Example:
        >>> Product(Algebra(torch.ones(1, 1, 1)), 2)(torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]))
        tensor([10., 21.])
    """

    def __init__(self, algebra: Algebra, dim: int) -> None:
        super().__init__()
        if dim < 1:
            raise InputError(f"dim={dim}: a product needs one channel or more")
        self.algebra, self.dim = algebra.for_layer(), dim

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply: [..., dim] and [..., dim] to [..., dim]; `InputError` for another number of channels."""
        for t in (x, y):
            if t.shape[-1] != self.dim:
                raise InputError(f"shape {list(t.shape)}: the vectors of this product have {self.dim} channels")
        if padding := -self.dim % self.algebra.n:
            x, y = F.pad(x, (0, padding)), F.pad(y, (0, padding))
        product: Tensor = self.algebra(x, y)
        return product[..., : self.dim]

    def extra_repr(self) -> str:
        """Show the size."""
        return str(self.dim)


class ElementNorm(nn.Module):
    r"""Root-mean-square norm with one gain per algebra element: y = g x / rms(x), C / n gains.

    Every component of an element is scaled alike, so the layer keeps directions in the algebra and commutes with
    multiplication by unit elements wherever the algebra is normed; `torch.nn.LayerNorm` does not.

    C are the real channels ``features``, component-major; n must divide them. ``eps`` is added to the mean square.
    """

    def __init__(self, features: int, n: int, eps: float = 1e-6) -> None:
        super().__init__()
        if features % n:
            raise InputError(f"{features} features are not whole elements of an algebra with n = {n}")
        self.n, self.eps = n, eps
        self.gain = nn.Parameter(torch.ones(features // n))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise: [..., C] to [..., C]."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # the square of 256 is none in float16
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.gain.repeat(self.n)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.n * self.gain.numel()}, n={self.n}"


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch norm over the tokens of a batch that are no padding (Ioffe and Szegedy 2015): [B, L, C] to [B, L, C].

    Every real channel has a mean and a variance of its own, and so have the real and the imaginary part of a complex channel
    (Wang et al. 2020, App. B).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise: [B, L, C], with a mask [B, L], False at padding, which comes out as zero in training."""
        if mask is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        tokens = super().forward(x[mask])
        return torch.zeros_like(x, dtype=tokens.dtype).masked_scatter(mask.unsqueeze(-1), tokens)


NORMS: dict[str, Callable[[int, int, bool], nn.Module]] = {
    "layer": lambda features, n, bias: nn.LayerNorm(features, bias=bias),
    "rms": lambda features, n, bias: nn.RMSNorm(features),
    "batch": lambda features, n, bias: TokenBatchNorm(features),
    "batch1d": lambda features, n, bias: nn.BatchNorm1d(features),
    "batch2d": lambda features, n, bias: nn.BatchNorm2d(features),
    "element": lambda features, n, bias: ElementNorm(features, n),
}
"""Norms by name, made of the real channels, n, and whether a ``layer`` norm has biases."""


def norm(name: str, features: int, n: int, bias: bool = True) -> nn.Module:
    """Return a norm over real channels: ``layer``, ``rms``, ``batch1d``, ``batch2d`` (torch's), ``batch`` or ``element``.

    Raises:
        InputError: If the name is unknown.
    """
    check_choice("norm", name, NORMS)
    return NORMS[name](features, n, bias)


class Readout(nn.Module):
    r"""Turn component-major features [..., C] into real ones.

    ``channels`` keeps all C of them (every component is a feature, as in QuaternionNLP and Fraction); ``modulus`` returns the
    Euclidean length of each element, [..., C / n], which no multiplication by a unit element changes if the algebra is normed;
    ``scalar`` returns component 0 of each element, [..., C / n].
    Any other name is an `InputError`.
    """

    def __init__(self, n: int, name: str = "channels") -> None:
        super().__init__()
        check_choice("readout", name, READOUTS)
        self.n, self.name = n, name

    def features(self, channels: int) -> int:
        """Return the number of real features that so many channels become."""
        return channels if self.name == "channels" else channels // self.n

    def forward(self, x: Tensor) -> Tensor:
        """Read out: [..., C] to [..., features(C)]."""
        if self.name == "channels":
            return x
        elements: Tensor = x.unflatten(-1, (self.n, -1))
        return torch.linalg.vector_norm(elements, dim=-2) if self.name == "modulus" else elements[..., 0, :]

    def extra_repr(self) -> str:
        """Show n and the name."""
        return f"n={self.n}, {self.name}"
