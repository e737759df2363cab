"""Read-only tensors: in-place operations raise an error."""

import re
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.errors import InputError

_IN_PLACE = re.compile(
    r"\w*[^_]_|__(setitem|set|i(add|sub|mul|div|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift|matmul))__"
)
"""Names of functions that write to their first argument."""


class ReadOnly(Tensor):
    """A tensor whose in-place operations raise `InputError`; subclasses set the message.

    Views of it (``data``, ``detach()``, slices, the parts of ``chunk``) are read-only too; other results are ordinary tensors.
    Writes through its storage or a NumPy array are not detected.
    """

    message: ClassVar[str] = "this tensor is read-only: change a clone() of it"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, unless it writes to a read-only tensor."""
        kwargs = kwargs or {}
        first = args[:1] or tuple(kwargs.values())[:1]
        written = first if _IN_PLACE.fullmatch(getattr(func, "__name__", "")) else ()
        for target in (*written, kwargs.get("out")):
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


def _protected(result: Any, source: ReadOnly) -> Any:
    """Make views of a read-only tensor read-only, also in a list or tuple."""
    if type(result) in (tuple, list):
        return type(result)(_protected(part, source) for part in result)
    if not isinstance(result, Tensor) or isinstance(result, ReadOnly):
        return result
    try:
        is_view = result.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse tensors and tensors of torch.func
        return result
    return result.as_subclass(type(source)) if is_view else result
