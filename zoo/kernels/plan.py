"""The choice of a kernel: the installed one that promises the least time, a pure function of the shapes."""

import warnings
from functools import cache

from zoo import registry
from zoo.errors import InputError, one_line, shorten
from zoo.kernels.base import Kernel, Work

AUTO = "auto"


def kernels() -> tuple[Kernel, ...]:
    """Return the installed and registered kernels; one that fails to load is skipped with a warning."""
    loaded = (_load(entry) for entry in registry.entries("zoo.kernels"))
    return tuple(kernel for kernel in loaded if kernel is not None)


@cache
def _load(entry: registry.Entry) -> Kernel | None:
    try:
        kernel = registry.load(entry)()
    except Exception as error:  # a broken plugin breaks only itself
        warnings.warn(f"skipping the {entry}: {one_line(error)}", stacklevel=2)
        return None
    if not isinstance(kernel, Kernel):
        raise InputError(f"{entry} is {type(kernel).__name__}, not a zoo.kernels.Kernel")
    return kernel


def plan(work: Work, name: str = AUTO) -> Kernel:
    """Return the kernel that a product should use.

    Args:
        work: The product.
        name: The kernel to use where it can; ``block`` does what it cannot. ``auto`` compares the predicted times.
    """
    able = [kernel for kernel in kernels() if kernel.can(work)]
    if name == AUTO:
        return min(able, key=lambda kernel: kernel.cost(work))
    return next(kernel for wanted in (name, "block") for kernel in able if kernel.name == wanted)


def check_kernel(name: str) -> None:
    """Check the name of a kernel.

    Raises:
        InputError: If no kernel has it, or it cannot run on this machine.
    """
    by_name = {kernel.name: kernel for kernel in kernels()}
    if name != AUTO and name not in by_name:
        raise InputError(f"kernel={shorten(name)}: use {AUTO}, {', '.join(sorted(by_name))}", code="unknown")
    if name != AUTO and (lack := by_name[name].missing()):
        raise InputError(f"kernel='{name}' cannot run here: {lack}", code="unsupported")
