"""Read-only tensors: in-place operations raise an error."""

from collections.abc import Iterator
from typing import Any, ClassVar, Never

import torch
from torch import Tensor

from zoo.errors import InputError

_OPERATORS = "add sub mul div truediv floordiv mod pow and or xor lshift rshift matmul"
_WRITES = {"__setitem__", "__set__", "__delete__", "__dlpack__", "storage"} | {f"__i{name}__" for name in _OPERATORS.split()}


class ReadOnly(Tensor):
    """A tensor whose in-place operations raise `InputError`; subclasses set the message.

    Results that share its memory (``data``, ``detach()``, views, the parts of ``chunk``, ``untyped_storage()``, NumPy arrays)
    are read-only too; all other results are ordinary tensors. Writes through ``data_ptr()``, ``to_dlpack`` and ``Tensor.set_``
    are not detected.
    """

    message: ClassVar[str] = "this tensor is read-only: change a clone() of it"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, unless it writes to a read-only tensor."""
        kwargs = kwargs or {}
        for target in _written(func, args, kwargs):
            if isinstance(target, ReadOnly):
                raise InputError(target.message, code="unsupported")
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            source = next((arg for arg in args if isinstance(arg, ReadOnly)), None)
            return result if source is None else _protected(result, source)

    def __deepcopy__(self, memo: Any) -> Tensor:
        """Return an ordinary copy."""
        return self.detach().clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle an ordinary copy."""
        return self.detach().clone().__reduce_ex__(protocol)


class FixedProduct(ReadOnly):
    """The structure tensor of a fixed product, or a part of it."""

    message = "a fixed product is read-only: assign a new tensor to algebra.structure, or use a learned algebra"


class ReadOnlyStorage(torch.UntypedStorage):
    """The storage of a read-only tensor, which can be saved and copied."""

    message: str

    def _refuse(self, *_: Any, **__: Any) -> Never:
        raise InputError(self.message, code="unsupported")

    __setitem__ = copy_ = fill_ = resize_ = byteswap = _refuse

    def clone(self) -> torch.UntypedStorage:
        """Return an ordinary copy."""
        return torch.UntypedStorage(self.nbytes(), device=self.device).copy_(self)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments that a function of torch writes to, judged by its name, ``inplace=True`` and ``out``."""
    name = getattr(func, "__name__", "").partition(".")[0]  # torch.ops.aten.mul_.Tensor
    in_place = name in _WRITES or (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace") is True
    targets = [*(args[:1] or tuple(kwargs.values())[:1])] if in_place else []
    targets.append(kwargs.get("out"))
    lists = [target if isinstance(target, list | tuple) else (target,) for target in targets]  # torch._foreach_zero_([w])
    return tuple(target for targets in lists for target in targets)


def _protected(result: Any, source: ReadOnly) -> Any:
    """Make a result read-only if it shares memory with a read-only tensor."""
    if isinstance(result, Tensor):
        is_alias = not isinstance(result, ReadOnly) and _share_memory(result, source)
        return result.as_subclass(type(source)) if is_alias else result
    if type(result) in (list, tuple):
        return type(result)(_protected(part, source) for part in result)
    if isinstance(result, torch.UntypedStorage):
        result.__class__, result.message = ReadOnlyStorage, source.message  # type: ignore[attr-defined]
    if isinstance(result, Iterator):
        return iter([_protected(part, source) for part in result])
    if type(result).__module__ == "numpy" and hasattr(result, "setflags"):
        result.setflags(write=False)
    return result


def _share_memory(a: Tensor, b: Tensor) -> bool:
    try:
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse tensors and tensors of torch.func
        return False
