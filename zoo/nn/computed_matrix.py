"""The real matrix of a layer as a tensor that refuses writes, which would be lost."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.errors import InputError

COMPUTED = "the weight of a layer over an algebra is computed: change layer.components instead"
WITHOUT_OPERATOR = {"__set__", "apply_", "map_", "map2_", "requires_grad_"}
"""Functions that change a tensor and call no operator; ``__set__`` assigns an attribute, such as ``data``."""


class ComputedMatrix(Tensor):
    """The real matrix of a weight: a temporary tensor that raises `InputError` when it, or a view of it, is written to.

    Writes through its storage or a NumPy array are not detected, nor are writes in compiled graphs.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, unless it writes to a computed matrix."""
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        # Autograd checks ``out`` before it calls operators.
        if _computed([*args[: name in WITHOUT_OPERATOR], kwargs.get("out")]):
            raise InputError(COMPUTED, code="unsupported")
        sources = _computed([*args, *kwargs.values()])
        guard = nullcontext() if name == "__get__" else _WriteGuard(sources)  # getters only make views
        with torch._C.DisableTorchFunctionSubclass(), guard:
            return _protected(func(*args, **kwargs), sources)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        """Show an ordinary tensor."""
        with torch._C.DisableTorchFunctionSubclass():
            return repr(self.as_subclass(Tensor))

    def __deepcopy__(self, memo: object) -> Tensor:
        """Return an ordinary copy."""
        return self.detach().clone()

    def __reduce_ex__(self, protocol: object) -> Any:
        """Pickle an ordinary copy."""
        return self.detach().clone().__reduce_ex__(protocol)


class _WriteGuard(TorchDispatchMode):
    """Raise `InputError` for operators that, by their schema, write to an argument which shares memory with a matrix."""

    def __init__(self, matrices: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.matrices = matrices

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, unless it writes to one of the matrices."""
        values = dict(enumerate(args)) | (kwargs or {})
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written = _tensors([values.get(position), values.get(argument.name)])
                if any(_shares_memory(tensor, self.matrices) for tensor in written):
                    raise InputError(COMPUTED, code="unsupported")
        return func(*args, **(kwargs or {}))


def _tensors(values: Iterable[object]) -> Iterator[Tensor]:
    """Yield the tensors among values and in lists and tuples of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _computed(values: Iterable[object]) -> list[Tensor]:
    return [tensor for tensor in _tensors(values) if isinstance(tensor, ComputedMatrix)]


def _shares_memory(tensor: Tensor, matrices: list[Tensor]) -> bool:
    return any(torch._C._is_alias_of(tensor, matrix) for matrix in matrices)  # type: ignore[attr-defined]


def _protected(result: Any, matrices: list[Tensor]) -> Any:
    """Make views of computed matrices read-only, also in a list or tuple."""
    if type(result) in (tuple, list):
        return type(result)(_protected(part, matrices) for part in result)
    is_view = isinstance(result, Tensor) and not isinstance(result, ComputedMatrix) and _shares_memory(result, matrices)
    return result.as_subclass(ComputedMatrix) if is_view else result
