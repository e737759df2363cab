"""Choose the kernel of a product: the installed kernel with the lowest predicted cost, a pure function of the shapes."""

import warnings
from functools import cache

from zoo import registry
from zoo.errors import InputError, one_line, shorten
from zoo.kernels.base import Kernel, Work

AUTO = "auto"


def kernels() -> list[Kernel]:
    """Return the installed and registered kernels; one that fails to load is skipped with a warning."""
    return [kernel for entry in registry.entries("zoo.kernels") if (kernel := _load(entry)) is not None]


@cache
def _load(entry: registry.Entry) -> Kernel | None:
    try:
        kernel: Kernel = registry.load(entry)()
    except Exception as error:  # plugins may raise anything
        warnings.warn(f"skipping the {entry}: {one_line(error)}", stacklevel=2)
        return None
    return kernel


def plan(work: Work, name: str = AUTO) -> Kernel:
    """Return the kernel for a product.

    Args:
        work: The product.
        name: The kernel to use if it supports the product, with ``block`` as the fallback; ``auto`` for the lowest cost.
    """
    candidates = [kernel for kernel in kernels() if kernel.can(work)]
    if name == AUTO:
        return min(candidates, key=lambda kernel: kernel.cost(work))
    return next(kernel for choice in (name, "block") for kernel in candidates if kernel.name == choice)


def check_kernel(name: str) -> None:
    """Raise `InputError` if a kernel does not exist or cannot run on this machine."""
    by_name = {kernel.name: kernel for kernel in kernels()}
    if name == AUTO:
        return
    if name not in by_name:
        raise InputError(f"kernel={shorten(name)}: use {AUTO}, {', '.join(sorted(by_name))}", code="unknown")
    if reason := by_name[name].missing():
        raise InputError(f"kernel='{name}' is not supported on this machine: {reason}", code="unsupported")
