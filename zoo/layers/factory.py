"""The factory that backbones build with: it knows the algebra, so that they need not."""

from typing import Any

from torch import nn

from zoo.algebra import Algebra, algebra, reals
from zoo.errors import InputError
from zoo.layers.conv import Conv1d, Conv2d
from zoo.layers.embedding import Embedding
from zoo.layers.init import INITS
from zoo.layers.linear import Linear
from zoo.layers.norm import norm
from zoo.layers.readout import Readout

ROLES = ("attention", "ffn", "conv", "recurrent", "stem", "embed", "head")
BODY = frozenset({"attention", "ffn", "conv", "recurrent"})


def parse_scope(scope: str) -> frozenset[str]:
    """Return the roles that a scope makes hypercomplex.

    Args:
        scope: Roles joined by ``+``; ``all`` stands for every matrix between the stem and the head, so ``all`` is the papers'
            full model, ``attention`` the partial one of Tay et al. (2019), and ``all+head`` also shrinks the head.

    Raises:
        InputError: If a role is unknown.
    """
    roles: set[str] = set()
    for role in scope.split("+"):
        if role != "all" and role not in ROLES:
            raise InputError(f"unknown scope '{role}' in '{scope}': use all or roles joined by '+': {', '.join(ROLES)}")
        roles |= BODY if role == "all" else {role}
    return frozenset(roles)


class Layers:
    """Make the layers of one network: hypercomplex where the scope says so, over the reals everywhere else.

    Args:
        rule: The algebra, or its spec.
        scope: Which roles are hypercomplex, see `parse_scope`.
        init: The initialisation of every matrix, see `zoo.layers.init.draw_components`.

    Example:
        >>> layers = Layers(reals())
        >>> layers.linear(8, 4, role="ffn").weight.shape
        torch.Size([4, 8])
    """

    def __init__(self, rule: Algebra | str, scope: str = "all", init: str = "variance") -> None:
        if init not in INITS:
            raise InputError(f"unknown initialisation '{init}': use {', '.join(INITS)}")
        self.algebra, self.scope, self.init = algebra(rule), scope, init
        self.roles = parse_scope(scope)

    @property
    def n(self) -> int:
        """Dimension of the algebra."""
        return self.algebra.n

    def over(self, role: str) -> Algebra:
        """The algebra of the layers of a role."""
        if role not in ROLES:
            raise InputError(f"unknown role '{role}': use {', '.join(ROLES)}")
        return self.algebra if role in self.roles else reals()

    def linear(self, in_features: int, out_features: int, bias: bool = True, *, role: str, **options: Any) -> Linear:
        """Return a linear layer; see `Linear` for the options."""
        return Linear(self.over(role), in_features, out_features, bias, init=self.init, **options)

    def conv1d(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, ...], *, role: str = "conv", **options: Any
    ) -> Conv1d:
        """Return a convolution over one axis, with torch's arguments."""
        return Conv1d(self.over(role), in_channels, out_channels, kernel_size, init=self.init, **options)

    def conv2d(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, ...], *, role: str = "conv", **options: Any
    ) -> Conv2d:
        """Return a convolution over two axes, with torch's arguments."""
        return Conv2d(self.over(role), in_channels, out_channels, kernel_size, init=self.init, **options)

    def embedding(self, rows: int, dim: int, *, role: str = "embed", padding_idx: int | None = None) -> Embedding:
        """Return a table of vectors; real unless the scope names ``embed``."""
        return Embedding(self.over(role), rows, dim, padding_idx, init=self.init)

    def norm(self, features: int, kind: str = "layer") -> nn.Module:
        """Return a norm over real channels, see `zoo.layers.norm.norm`."""
        return norm(kind, features, self.n)

    def readout(self, kind: str = "channels") -> Readout:
        """Return the step from algebra elements back to real features, see `Readout`."""
        return Readout(self.n, kind)
