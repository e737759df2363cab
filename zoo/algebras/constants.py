"""Tensors that are computed once from a fixed product, in every dtype and on every device that needs them."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor


class Constants:
    """The stored tensor of a fixed product, which nothing changes, and what is derived from it.

    Copies of an algebra share them. Assigning another product creates new constants, so a thread that derives a constant of the
    old product cannot store it for the new one.
    """

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.is_one = table.numel() == 1 and not table.is_meta and table.item() == 1
        self.literal = ""  # see `zoo.algebras.literal`
        self.factor_literals: tuple[str, ...] = ()  # see `zoo.algebras.factor_literals`
        self._derived: dict[Hashable, Any] = {}

    def get(self, key: str, like: Tensor, make: Callable[[], Any]) -> Any:
        """Return a tensor, tuple of tensors or None in the dtype and on the device of ``like``, not to be written to."""
        place = key, like.dtype, like.device
        if place in self._derived:
            return self._derived[place]
        with torch.inference_mode(False), torch.no_grad():  # inference tensors cannot be used in training
            constant = make()
            if isinstance(constant, tuple):
                constant = type(constant)(*(tensor.to(like) for tensor in constant))
            elif constant is not None:
                constant = constant.to(like)
        if not torch.compiler.is_compiling():
            self._derived[place] = constant
        return constant

    def find(self, key: str, like: Tensor) -> Any:
        """Return a constant that `get` has returned before, or None: compiled graphs should not contain its computation."""
        return self._derived.get((key, like.dtype, like.device))

    def __deepcopy__(self, memo: object) -> "Constants":
        """Share the constants with copies of the algebra."""
        return self

    def __reduce__(self) -> tuple[type["Constants"], tuple[Tensor]]:
        """Pickle only the stored tensor."""
        return Constants, (self.table,)
