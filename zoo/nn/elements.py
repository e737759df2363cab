"""Layers on algebra elements: the product, norms and readouts."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.algebras import Algebra
from zoo.algebras import algebra as named
from zoo.errors import InputError, check_choice

READOUTS = ("channels", "modulus", "scalar")


class Product(nn.Module):
    """Product of two feature vectors, element by element; over the reals the entrywise product.

    Used by quaternion attention to compare aligned words (Tay et al. 2019, section 3.2). The vectors have ``dim`` real
    channels, component-major, which are zero-padded internally to a multiple of n.

    Example:
        >>> Product(2, algebra=Algebra(torch.ones(1, 1, 1)))(torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0]))
        tensor([10., 21.])
    """

    def __init__(self, dim: int, *, algebra: Algebra | str) -> None:
        super().__init__()
        self.algebra, self.dim = named(algebra).for_layer(), dim

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply: [..., dim] and [..., dim] to [..., dim]."""
        if padding := -self.dim % self.algebra.n:
            x, y = F.pad(x, (0, padding)), F.pad(y, (0, padding))
        product: Tensor = self.algebra(x, y)
        return product[..., : self.dim]


class ElementNorm(nn.Module):
    r"""Root-mean-square norm of C = ``features`` channels with one gain per algebra element: y = g x / rms(x), C / n gains.

    All components of an element have the same scale, so the layer preserves directions in the algebra and, in a normed algebra,
    commutes with multiplication by unit elements; `torch.nn.LayerNorm` does not. ``eps`` is added to the mean square.
    """

    def __init__(self, features: int, n: int, eps: float = 1e-6) -> None:
        super().__init__()
        if features % n:
            raise InputError(f"{features} features: must be a multiple of n = {n}")
        self.n, self.eps = n, eps
        self.gain = nn.Parameter(torch.ones(features // n))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize: [..., C] to [..., C]."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # 256^2 overflows in float16
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.gain.repeat(self.n)


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch norm over the tokens of a batch, without padding (Ioffe and Szegedy 2015): [B, L, C] to [B, L, C].

    Every real channel has its own mean and variance, including the real and imaginary part of a complex channel (Wang et al.
    2020, App. B).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize: [B, L, C], with a mask [B, L] that is False at padding; in training, padding becomes zero."""
        if mask is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        tokens = super().forward(x[mask])
        return torch.zeros_like(x, dtype=tokens.dtype).masked_scatter(mask.unsqueeze(-1), tokens)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "batch": TokenBatchNorm,
    "element": ElementNorm,
}


def norm(name: str, features: int, n: int, bias: bool = True) -> nn.Module:
    """Create a norm of `NORMS` over real channels; ``bias`` is that of ``layer``."""
    check_choice("norm", name, NORMS)
    options: dict[str, dict[str, int]] = {"layer": {"bias": bias}, "element": {"n": n}}
    return NORMS[name](features, **options.get(name, {}))


class Readout(nn.Module):
    r"""Map component-major features [..., C] to real features.

    ``channels`` returns all C channels, as in QuaternionNLP and Fraction; ``modulus`` the Euclidean norm of each element,
    [..., C / n], which in a normed algebra is invariant under multiplication by unit elements; ``scalar`` component 0 of each
    element, [..., C / n].
    """

    def __init__(self, n: int, name: str = "channels") -> None:
        super().__init__()
        check_choice("readout", name, READOUTS)
        self.n, self.name = n, name

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., C] to [..., C] or [..., C / n]."""
        if self.name == "channels":
            return x
        elements: Tensor = x.unflatten(-1, (self.n, -1))
        return torch.linalg.vector_norm(elements, dim=-2) if self.name == "modulus" else elements[..., 0, :]
