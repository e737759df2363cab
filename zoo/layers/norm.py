"""Norms: torch's own on real channels, and one that keeps algebra elements whole."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from zoo.errors import InputError

KINDS: dict[str, Callable[[int], nn.Module]] = {
    "rms": nn.RMSNorm,
    "batch1d": nn.BatchNorm1d,
    "batch2d": nn.BatchNorm2d,
}


class ElementNorm(nn.Module):
    r"""Root-mean-square norm with one gain per algebra element: y = g x / rms(x), C / n gains.

    Every component of an element is scaled alike, so the layer keeps directions in the algebra and commutes with
    multiplication by unit elements wherever the algebra is normed; `torch.nn.LayerNorm` does not.

    Args:
        features: C, real channels, component-major.
        n: Dimension of the algebra, dividing C.
        eps: Added to the mean square.

    Raises:
        InputError: If n does not divide the features.
    """

    def __init__(self, features: int, n: int, eps: float = 1e-6) -> None:
        super().__init__()
        if features % n:
            raise InputError(f"{features} features are not whole elements of an algebra with n = {n}")
        self.n, self.eps = n, eps
        self.gain = nn.Parameter(torch.ones(features // n))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise: [..., C] to [..., C]."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.gain.repeat(self.n)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.n * self.gain.numel()}, n={self.n}"


def norm(kind: str, features: int, n: int, bias: bool = True) -> nn.Module:
    """Return the norm of that kind over real channels: ``layer``, ``rms``, ``batch1d``, ``batch2d`` (torch's) or ``element``.

    Args:
        kind: Which.
        features: Real channels.
        n: Dimension of the algebra.
        bias: Whether a ``layer`` norm has biases.

    Raises:
        InputError: If there is no such kind.
    """
    if kind == "element":
        return ElementNorm(features, n)
    if kind == "layer":
        return nn.LayerNorm(features, bias=bias)
    if kind not in KINDS:
        raise InputError(f"unknown norm '{kind}': use {', '.join(['layer', *KINDS, 'element'])}")
    return KINDS[kind](features)
