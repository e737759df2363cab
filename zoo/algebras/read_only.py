"""Tensors that are computed or constant, so that writing to them would be lost or change a shared value."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.errors import InputError


class ReadOnly(Tensor):
    """A tensor that raises `InputError` when it, or a view of it, is written to; subclasses set the message.

    Writes through its storage or a NumPy array are not detected, nor are writes in compiled graphs.
    """

    message: ClassVar[str] = "this tensor is read-only: change a clone() of it"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, unless it writes to a read-only tensor."""
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        # Setters and some in-place methods, such as requires_grad_, call no operator, and ``out`` is first checked by autograd.
        name = getattr(func, "__name__", "")
        is_in_place = name == "__set__" or name.removesuffix("__").endswith("_")
        for written in _tensors([*args[:is_in_place], kwargs.get("out")]):
            if isinstance(written, ReadOnly):
                raise InputError(written.message, code="unsupported")
        sources = [tensor for tensor in _tensors([*args, *kwargs.values()]) if isinstance(tensor, ReadOnly)]
        guard = nullcontext() if name == "__get__" else _WriteGuard(sources)  # getters only make views
        with torch._C.DisableTorchFunctionSubclass(), guard:
            return _protected(func(*args, **kwargs), sources)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Show an ordinary tensor."""
        with torch._C.DisableTorchFunctionSubclass():
            return repr(self.as_subclass(Tensor))

    def __deepcopy__(self, memo: Any) -> Tensor:
        """Return an ordinary copy."""
        return self.detach().clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle an ordinary copy."""
        return self.detach().clone().__reduce_ex__(protocol)


class _WriteGuard(TorchDispatchMode):
    """Raise `InputError` for operators that, by their schema, write to an argument which shares memory with a tensor."""

    def __init__(self, tensors: list[ReadOnly]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tensors = tensors

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, unless it writes to one of the tensors."""
        values = dict(enumerate(args)) | (kwargs or {})
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for written in _tensors([values.get(position), values.get(argument.name)]):
                    if (source := _source(written, self.tensors)) is not None:
                        raise InputError(source.message, code="unsupported")
        return func(*args, **(kwargs or {}))


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values and in lists and tuples of them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _source(tensor: Tensor, sources: list[ReadOnly]) -> ReadOnly | None:
    """Return the read-only tensor that a tensor shares memory with, or None."""
    return next((source for source in sources if torch._C._is_alias_of(tensor, source)), None)  # type: ignore[attr-defined]


def _protected(result: Any, sources: list[ReadOnly]) -> Any:
    """Make views of read-only tensors read-only, also in a list or tuple."""
    if type(result) in (tuple, list):
        return type(result)(_protected(part, sources) for part in result)
    if not isinstance(result, Tensor) or isinstance(result, ReadOnly):
        return result
    source = _source(result, sources)
    return result if source is None else result.as_subclass(type(source))
