"""From algebra elements back to real features."""

import torch
from torch import Tensor, nn

from zoo.errors import InputError

KINDS = ("channels", "modulus", "scalar")


class Readout(nn.Module):
    r"""Turn component-major features [..., C] into real ones.

    ``channels`` keeps all C of them (every component is a feature, as in QuaternionNLP and Fraction); ``modulus`` gives the
    Euclidean length of each element, [..., C / n], which no multiplication by a unit element changes if the algebra is normed;
    ``scalar`` gives component 0 of each element, [..., C / n].

    Args:
        n: Dimension of the algebra.
        kind: One of the three.

    Raises:
        InputError: If there is no such kind.
    """

    def __init__(self, n: int, kind: str = "channels") -> None:
        super().__init__()
        if kind not in KINDS:
            raise InputError(f"unknown readout '{kind}': use {', '.join(KINDS)}")
        self.n, self.kind = n, kind

    def features(self, channels: int) -> int:
        """How many real features come out of that many channels."""
        return channels if self.kind == "channels" else channels // self.n

    def forward(self, x: Tensor) -> Tensor:
        """Read out: [..., C] to [..., features(C)]."""
        if self.kind == "channels":
            return x
        elements: Tensor = x.unflatten(-1, (self.n, -1))
        return torch.linalg.vector_norm(elements, dim=-2) if self.kind == "modulus" else elements[..., 0, :]

    def extra_repr(self) -> str:
        """Show the kind."""
        return f"n={self.n}, kind={self.kind}"
